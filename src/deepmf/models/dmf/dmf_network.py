"""The network of DMF: a branch for rows, a branch for columns, and the cosine of their latents."""

from __future__ import annotations

from torch import Tensor, nn

from deepmf.layers.branch import Branch
from deepmf.layers.cosine import directions, inner_products
from deepmf.layers.masking import Masking
from deepmf.layers.vectors import Batch, FeatureBatch


class DMFNetwork(nn.Module):
    """F of the paper: R_ij = cos(h_X(X_i), h_Y(Y_j)), for every pair of a batch of rows and a batch of columns.

    masking: where there are features, what each step of training masks of these and of the entries.
    """

    def __init__(self, rows: Branch, columns: Branch, masking: Masking | None = None) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns
        self.masking = masking

    def forward(
        self,
        rows: Batch,
        columns: Batch,
        row_features: FeatureBatch | None = None,
        column_features: FeatureBatch | None = None,
    ) -> Tensor:
        """Return the cosines (rows, columns), in [-1, 1]."""
        return inner_products(
            directions(self.rows(rows, row_features)), directions(self.columns(columns, column_features))
        )

    def squared_weights(self) -> Tensor:
        """Return ||W_X||^2 + ||W_Y||^2 of equation 1."""
        squares = [weight.square().sum() for branch in (self.rows, self.columns) for weight in branch.weights()]
        total = squares[0]
        for square in squares[1:]:
            total = total + square
        return total
