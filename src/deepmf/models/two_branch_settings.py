"""The settings of models with two branches."""

from __future__ import annotations

from dataclasses import dataclass

from deepmf.training.settings import WIDEST, TrainingSettings


@dataclass(frozen=True, kw_only=True)
class TwoBranchSettings(TrainingSettings):
    """The settings of two branches.

    hidden_sizes, latent_size: the widths of a branch (h_X and h_Y in section 2 of the paper); `column_hidden_sizes`
        where the branch for columns has others.
    dropout: the fraction dropped after every hidden layer.
    block_rows, block_columns: the block of one step, at least 2 x 2.
    """

    block_rows: int = 300
    block_columns: int = 200
    hidden_sizes: tuple[int, ...] = (2048,)
    column_hidden_sizes: tuple[int, ...] | None = None
    latent_size: int = 1024
    dropout: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("hidden_sizes")
        if self.column_hidden_sizes is not None:
            self.check_sizes("column_hidden_sizes")
        for name in ("block_rows", "block_columns"):
            self.check_whole(name, low=2)  # batch norm needs two vectors to have statistics
        self.check_whole("latent_size", low=1, high=WIDEST)
        self.check_number("dropout", low=0.0, high=0.99)

    @property
    def branch_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The widths of all layers of the branch for rows, and of the branch for columns."""
        own = self.hidden_sizes if self.column_hidden_sizes is None else self.column_hidden_sizes
        return (*self.hidden_sizes, self.latent_size), (*own, self.latent_size)
