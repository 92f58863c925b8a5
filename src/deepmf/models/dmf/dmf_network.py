"""The network of DMF: a branch for rows, a branch for columns, and the cosine of their latents."""

from __future__ import annotations

from torch import Tensor, nn

from deepmf.layers.branch import Branch
from deepmf.layers.cosine import directions, inner_products
from deepmf.layers.vectors import Batch


class DMFNetwork(nn.Module):
    """F of the paper: R_ij = cos(h_X(X_i), h_Y(Y_j)), for every pair of a batch of rows and a batch of columns."""

    def __init__(self, rows: Branch, columns: Branch) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns

    def forward(self, rows: Batch, columns: Batch) -> Tensor:
        """Return the cosines (rows, columns), in [-1, 1]."""
        return inner_products(directions(self.rows(rows)), directions(self.columns(columns)))

    def squared_weights(self) -> Tensor:
        """Return ||W_X||^2 + ||W_Y||^2 of equation 1."""
        squares = [weight.square().sum() for branch in (self.rows, self.columns) for weight in branch.weights()]
        total = squares[0]
        for square in squares[1:]:
            total = total + square
        return total
