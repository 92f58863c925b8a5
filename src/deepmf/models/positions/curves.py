"""Curves: what smooth factors have learned, to be shown along positions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deepmf.matrix.arrays import FloatArray
from deepmf.matrix.entries import EntryStore
from deepmf.matrix.feature_encoding import PositionEncoding
from deepmf.models.positions.member import N_BESIDE, SmoothEncoder
from deepmf.scoring.factors import Factors

_SECONDS_A_DAY = 86_400


class Curves(NamedTuple):
    """The main curves that all series are mixtures of, (curves, times), along positions (times,).

    name: of the positions, and of their unit. shares: of the variation that each explains.
    """

    name: str
    positions: FloatArray
    curves: FloatArray
    shares: FloatArray


def find_curves(factors: Factors, entries: EntryStore, n: int = 3) -> Curves:
    """Return the first principal components of the smooth part of all predictions."""
    encoder = factors.encoder
    assert isinstance(encoder, SmoothEncoder)
    calendar, features = encoder.calendar, entries.get_features(encoder.calendar.axis)
    assert features is not None
    latents = [latents.base[:, :-N_BESIDE] for latents in (factors.rows, factors.columns)]
    is_column = calendar.axis == "column"
    times, series = latents[is_column], latents[not is_column]
    squares, directions = np.linalg.eigh(series.T @ series)
    roots = np.sqrt(np.maximum(squares, 0.0))
    mixed = (times - times.mean(axis=0)) @ (directions * roots)
    left, sizes, _ = np.linalg.svd(mixed, full_matrices=False)
    shares = np.square(sizes) / max(float(np.square(sizes).sum()), 1e-12)
    (encoding,) = [
        encoding
        for first, encoding in features.encoding.locate_columns()
        if first == calendar.at and isinstance(encoding, PositionEncoding)
    ]
    known = np.flatnonzero(features.base.are_known)
    positions = encoding.spread * features.base.read_input(calendar.at)[known].astype(np.float64)
    name = encoding.name
    if encoding.are_dates:
        positions = (positions - positions.min()) / _SECONDS_A_DAY
        name = f"{name}, in days"
    else:
        positions += encoding.mean
    order = np.argsort(positions)
    curves = (left[:, :n] * sizes[:n]).T.astype(np.float64)
    return Curves(name, positions[order], curves[:, known[order]], shares[:n])
