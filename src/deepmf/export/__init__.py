"""Export of models to other runtimes."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.export.onnx import export_onnx

__all__ = ["export_onnx"]

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.export.onnx": ["export_onnx"],
    },
)
