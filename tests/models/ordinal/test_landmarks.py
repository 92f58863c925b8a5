"""Landmarks: inner products of their features are similarities, they are chosen among what differs, and few suffice."""

import pytest
import torch
from torch import Tensor

from deepmf.models.ordinal.landmarks import Landmarks, landmarks_among


def directions(n: int, n_numbers: int, *, seed: int = 0) -> Tensor:
    drawn = torch.randn(n, n_numbers, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(drawn, dim=1)


def similarity(one: Tensor, other: Tensor) -> Tensor:
    """A broad part and a sharp one."""
    less = one @ other.T - 1.0
    return 0.6 * less.exp() + 0.4 * (10.0 * less).exp()


def test_with_a_landmark_for_each_the_similarity_is_exact() -> None:
    known, new = directions(40, 8), directions(10, 8, seed=1)
    landmarks = Landmarks(known[landmarks_among(known, 40)])
    assert len(landmarks) == 40
    features = landmarks.features(known)
    torch.testing.assert_close(features @ features.T, similarity(known, known), atol=1e-4, rtol=0)
    torch.testing.assert_close(landmarks.features(new) @ features.T, similarity(new, known), atol=1e-4, rtol=0)


def test_few_landmarks_explain_most() -> None:
    known = directions(500, 3)
    landmarks = Landmarks(known[landmarks_among(known, 40)])
    features = landmarks.features(known)
    missed = similarity(known, known) - features @ features.T
    assert features.shape == (500, 40) and missed.abs().max() < 0.3
    at_random = Landmarks(known[:40]).features(known)
    assert missed.diag().mean() < 0.7 * (1.0 - at_random.square().sum(1)).mean()


def test_what_is_the_same_needs_one_landmark() -> None:
    known = directions(4, 6).repeat(25, 1)
    chosen = landmarks_among(known, 50)
    assert len(chosen) == 4 and len({int(position) % 4 for position in chosen}) == 4


def test_of_very_many_some_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepmf.models.ordinal.landmarks._CANDIDATES", 10)
    chosen = landmarks_among(directions(105, 8), 50)
    assert 5 < len(chosen) <= 10 and all(int(position) % 11 == 0 for position in chosen)


def test_no_landmarks_no_features() -> None:
    known = directions(5, 6)
    landmarks = Landmarks(known[landmarks_among(known, 0)])
    assert len(landmarks) == 0 and landmarks.features(known).shape == (5, 0)
