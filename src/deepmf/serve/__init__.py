"""The HTTP service: a model that answers requests and learns entries while it runs.

`serve(ServeOptions(model="model.safetensors", database="entries.sqlite"))` runs it as `deepmf serve` does;
`create_app(Service(model, open_database("entries.sqlite")))` returns an ASGI application for another server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

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

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.serve.app": ["create_app"],
        "deepmf.serve.auth": ["KeyRing", "add_key", "read_keys"],
        "deepmf.serve.database": ["open_database"],
        "deepmf.serve.server": ["ServeOptions", "serve"],
        "deepmf.serve.service": ["Service", "ServiceLimits"],
    },
)
