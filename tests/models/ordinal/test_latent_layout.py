"""The fields of OrdinalDMF's latents: one after another, without gaps."""

import numpy as np
import pytest

from deepmf.models.ordinal.latent_layout import LatentLayout


def test_the_fields_of_a_small_latent() -> None:
    layout = LatentLayout(n_direction=3, n_landmarks=2, n_linear=2, n_response=4)
    latent = np.array(["d", "d", "d", "l", "l", "a", "a", "row", "column", "cut", "cut", "cut", "slope"])
    assert layout.width == latent.size == 13
    assert latent[layout.direction].tolist() == ["d"] * 3
    assert latent[layout.landmarks].tolist() == ["l"] * 2
    assert latent[layout.factors].tolist() == ["d"] * 3 + ["l"] * 2
    assert latent[layout.linear].tolist() == ["a"] * 2
    assert (latent[layout.row_effect], latent[layout.column_effect]) == ("row", "column")
    assert latent[layout.response].tolist() == ["cut"] * 3 + ["slope"]
    assert latent[-layout.n_beside :].tolist() == latent[3:].tolist()


@pytest.mark.parametrize("n_direction", [1, 16])
@pytest.mark.parametrize("n_landmarks", [0, 1, 7])
@pytest.mark.parametrize("n_linear", [0, 4])
@pytest.mark.parametrize("n_response", [1, 5])
def test_every_number_is_in_one_field(n_direction: int, n_landmarks: int, n_linear: int, n_response: int) -> None:
    layout = LatentLayout(n_direction, n_landmarks, n_linear, n_response)
    taken = np.zeros(layout.width, dtype=int)
    fields = layout.direction, layout.landmarks, layout.linear, layout.row_effect, layout.column_effect, layout.response
    for field in fields:
        taken[field] += 1
    assert taken.tolist() == [1] * layout.width
    assert taken[layout.factors].size == n_direction + n_landmarks
    assert taken[layout.linear].size == n_linear and taken[layout.response].size == n_response
