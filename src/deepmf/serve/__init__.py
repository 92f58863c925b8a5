"""The HTTP service: a model that answers requests and learns entries while it runs.

`serve(ServeOptions(model="model.safetensors", database="entries.sqlite"))` runs it as `deepmf serve` does;
`create_app(Service(model, open_database("entries.sqlite")))` returns an ASGI application for another server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepmf.serve.app import create_app
    from deepmf.serve.auth import KeyRing, add_key, read_keys
    from deepmf.serve.database import open_database
    from deepmf.serve.server import ServeOptions, serve
    from deepmf.serve.service import Service, ServiceLimits

__all__ = [
    "KeyRing",
    "ServeOptions",
    "Service",
    "ServiceLimits",
    "add_key",
    "create_app",
    "open_database",
    "read_keys",
    "serve",
]

# Imported at first use: keys need neither fastapi nor torch.
_MODULES = {
    "KeyRing": "auth",
    "ServeOptions": "server",
    "Service": "service",
    "ServiceLimits": "service",
    "add_key": "auth",
    "create_app": "app",
    "open_database": "database",
    "read_keys": "auth",
    "serve": "server",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"deepmf.serve.{_MODULES[name]}"), name)
