"""Export of models to other runtimes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.export.onnx import export_onnx

__all__ = ["export_onnx"]


def __getattr__(name: str) -> Any:
    if name != "export_onnx":
        raise AttributeError(f"module 'deepmf.export' has no attribute {name!r}")
    from deepmf.export.onnx import export_onnx

    return export_onnx
