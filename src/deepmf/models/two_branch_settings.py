"""The settings that models of two branches share."""

from __future__ import annotations

from deepmf.training.declarations import settings_dataclass
from deepmf.training.setting_rules import WIDEST, number, sizes, whole
from deepmf.training.settings import TrainingSettings


@settings_dataclass
class TwoBranchSettings(TrainingSettings):
    """The settings of two branches: h_X and h_Y in section 2 of the paper."""

    # Batch norm needs two vectors to have statistics.
    block_rows: int = whole(300, low=2, meaning="The rows of a step's block.")
    block_columns: int = whole(200, low=2, meaning="The columns of a step's block.")
    hidden_sizes: tuple[int, ...] = sizes((2048,), meaning="The widths of a branch's layers but for the last.")
    column_hidden_sizes: tuple[int, ...] | None = sizes(
        None, optional=True, meaning="The same where the branch for columns has others (none: it has not)."
    )
    latent_size: int = whole(1024, low=1, high=WIDEST, meaning="The width of a branch's last layer.")
    dropout: float = number(0.8, low=0.0, high=0.99, meaning="The fraction dropped after every hidden layer.")

    @property
    def branch_sizes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The widths of all layers of the branch for rows, and of the branch for columns."""
        own = self.hidden_sizes if self.column_hidden_sizes is None else self.column_hidden_sizes
        return (*self.hidden_sizes, self.latent_size), (*own, self.latent_size)
