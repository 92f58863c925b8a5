"""ONNX: predict for new rows without Python (`pip install onnx onnxscript onnxruntime`).

`rows.onnx` maps the values of a row to its latents. A prediction is then the product with the
latents of a column, which lie beside it as a `.npy` file.
"""

import json
import logging
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

from deepmf import DMF
from deepmf.datasets import generate


class RowBranch(nn.Module):
    """The branch of rows: values on [-1, 1], 0 where missing, to latents of length 1."""

    def __init__(self, model: DMF) -> None:
        super().__init__()
        self.branch = model.network_.rows.eval()

    def forward(self, values: Tensor) -> Tensor:
        """Return the latents (rows, latent) of values (rows, columns)."""
        return nn.functional.normalize(self.branch(values))


def export(model: DMF, folder: Path) -> None:
    """Write the branch of rows, the latents of the columns and their labels."""
    values = torch.zeros(2, model.entries_.train.shape[1])
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            RowBranch(model),
            (values,),
            folder / "rows.onnx",
            dynamo=True,
            verbose=False,
            input_names=["values"],
            output_names=["latents"],
            dynamic_shapes=[{0: torch.export.Dim("rows")}],
        )
    np.save(folder / "columns.npy", model.column_latents_, allow_pickle=False)
    labels = model.column_labels_.tolist()
    (folder / "columns.json").write_text(json.dumps(labels), encoding="utf-8")


def main(folder: Path) -> None:
    """Export a DMF, then compare onnxruntime's predictions for a new row with those of deepmf."""
    ratings = generate(200, 80, density=0.2, noise=0.5, seed=0).matrix
    model = DMF(hidden_sizes=(32,), latent_size=8, dropout=0.3, epochs=20, inputs="scaled", seed=0)
    model.fit(ratings)
    export(model, folder)

    films, stars = model.column_labels_[[3, 14, 15]], [5, 1, 4]
    values = np.zeros((1, ratings.shape[1]), dtype=np.float32)
    values[0, [3, 14, 15]] = model.scale_.to_unit(np.array(stars, dtype=float))
    session = onnxruntime.InferenceSession(folder / "rows.onnx")
    (latents,) = session.run(None, {"values": values})
    cosines = np.clip(latents @ np.load(folder / "columns.npy").T, -1.0, 1.0)
    exported = model.scale_.from_unit(cosines[0])
    expected = model.fold_in(films, stars).predict(model.column_labels_)
    print(f"largest difference: {np.abs(exported - expected).max():.1e}")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))
