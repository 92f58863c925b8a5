"""MultVAE (Liang et al. 2018) in plain torch: a variational autoencoder of rows with a multinomial
likelihood.

Layers of 600 and 200 as in the paper; the weight of the divergence grows to `weight` over the
epochs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import ranking_exchange
import scipy.sparse
import torch
from torch import nn

HIDDEN, LATENT, BATCH, DROPOUT = 600, 200, 500, 0.5


class MultVAE(nn.Module):
    """Encoder and decoder of rows (rows, columns)."""

    def __init__(self, n_columns: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(n_columns, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2 * LATENT)
        )
        self.decode = nn.Sequential(
            nn.Linear(LATENT, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, n_columns)
        )
        for layer in (*self.encode, *self.decode):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.normal_(layer.bias, std=0.001)

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (rows, columns) and the divergence from the prior."""
        inputs = nn.functional.dropout(nn.functional.normalize(rows), DROPOUT, self.training)
        mean, log_variance = self.encode(inputs).chunk(2, dim=1)
        divergence = 0.5 * (log_variance.exp() + mean**2 - 1 - log_variance).sum(dim=1).mean()
        noise = torch.randn_like(mean) * (0.5 * log_variance).exp() if self.training else 0.0
        return self.decode(mean + noise), divergence


def fit(positions: scipy.sparse.csr_matrix, settings: ranking_exchange.Settings) -> MultVAE:
    """Train on rows with entries."""
    torch.manual_seed(settings.get("seed", 0))
    rows = positions[np.diff(positions.indptr) > 0]
    model = MultVAE(positions.shape[1]).train()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(settings["epochs"]):
        order = torch.randperm(rows.shape[0]).numpy()
        for start in range(0, order.size, BATCH):
            dense = torch.from_numpy(rows[order[start : start + BATCH]].toarray())
            logits, divergence = model(dense)
            likelihood = (nn.functional.log_softmax(logits, dim=1) * dense).sum(dim=1).mean()
            weight = settings["weight"] * min(1.0, (epoch + 1) / (0.5 * settings["epochs"]))
            optimiser.zero_grad()
            (weight * divergence - likelihood).backward()
            optimiser.step()
    return model.eval()


def score(
    model: Any, rows: ranking_exchange.Positions | None, histories: scipy.sparse.csr_matrix
) -> npt.NDArray[np.float32]:
    """Return the logits of rows by their entries."""
    with torch.no_grad():
        logits: npt.NDArray[np.float32] = model(torch.from_numpy(histories.toarray()))[0].numpy()
    return logits


if __name__ == "__main__":
    ranking_exchange.main(fit, score, packages=["torch", "numpy"])
