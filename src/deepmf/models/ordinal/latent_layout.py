"""Where the fields of OrdinalDMF's latents lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LatentLayout:
    """The fields of a latent, one after another; the inner product over all but the last is the score.

    direction: of rows times the head's scale; of columns of length 1 before views are averaged.
    landmarks: of columns the features by landmarks; of rows the moves along these.
    linear: the latents of the linear part; of rows times its weight.
    row_effect: of rows their effect; of columns 1.
    column_effect: of rows 1; of columns their effect.
    response: of rows the cutpoints and the logarithm of the slope; of columns zeros.
    """

    n_direction: int
    n_landmarks: int
    n_linear: int
    n_response: int

    @property
    def direction(self) -> slice:
        """The direction."""
        return slice(0, self.n_direction)

    @property
    def landmarks(self) -> slice:
        """What belongs to landmarks."""
        return slice(self.n_direction, self.n_direction + self.n_landmarks)

    @property
    def factors(self) -> slice:
        """Direction and landmarks: what a refinement moves beside the effect."""
        return slice(0, self.landmarks.stop)

    @property
    def linear(self) -> slice:
        """What belongs to the linear part."""
        return slice(self.landmarks.stop, self.row_effect)

    @property
    def row_effect(self) -> int:
        """The effect of a row."""
        return self.n_direction + self.n_landmarks + self.n_linear

    @property
    def column_effect(self) -> int:
        """The effect of a column."""
        return self.row_effect + 1

    @property
    def response(self) -> slice:
        """The response parameters of a row."""
        return slice(self.column_effect + 1, self.width)

    @property
    def width(self) -> int:
        """All numbers of a latent."""
        return self.column_effect + 1 + self.n_response

    @property
    def n_beside(self) -> int:
        """How many numbers follow the direction."""
        return self.width - self.n_direction
