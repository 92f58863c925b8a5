"""The HTTP service: a model that answers requests and learns entries while it runs.

`serve(ServeOptions(model="model.safetensors", database="entries.sqlite"))` runs it as `deepmf
serve` does; `create_app(Service(model, open_database("entries.sqlite")))` returns an ASGI
application for another server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.serve.app import create_app as create_app
    from deepmf.serve.auth import KeyRing as KeyRing, add_key as add_key, read_keys as read_keys
    from deepmf.serve.database import open_database as open_database
    from deepmf.serve.server import ServeOptions as ServeOptions, serve as serve
    from deepmf.serve.service import Service as Service, ServiceLimits as ServiceLimits

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
