"""Torch layers without torch's own initialisation, which draws from the global generator."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", bound=nn.Module)


def is_blank() -> bool:
    """Return whether networks are made without weights: on torch's "meta" device, where tensors are shapes alone."""
    return torch.get_default_device().type == "meta"


def blank(kind: type[Layer], *sizes: int, **options: Any) -> Layer:
    """Return a layer whose weights are to be set, on the default device."""
    layer = kind(*sizes, **options, device="meta")
    # `torch.nn.utils.skip_init` would go from "meta" to "meta" by way of torch's compiler, whose import takes seconds.
    return layer if is_blank() else layer.to_empty(device=torch.get_default_device())
