"""Export of models to other runtimes."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.export.onnx import export_onnx as export_onnx

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
