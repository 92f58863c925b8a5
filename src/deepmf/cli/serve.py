"""`deepmf serve`: a model behind HTTP that learns entries while it runs; and its keys."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated

import typer

from deepmf.cli.options import Json, Seed
from deepmf.cli.output import say, show_json
from deepmf.errors import BadSetting, MissingDependency

Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="Where entries are kept: a SQLite file (MODEL.entries.sqlite unless given), or postgresql://...",
    ),
]


def serve(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="A model file or folder.")] = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 for any that is free.")] = 8000,
    database: Database = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="API keys (deepmf api-key); needed where others can reach it."),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate-limit", metavar="N", help="Requests a second for each API key and worker.")
    ] = 1_000.0,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="How many processes answer.")] = 1,
    log_level: Annotated[str, typer.Option("--log-level", metavar="info|warning|error", help="What to log.")] = "info",
    demo: Annotated[
        bool, typer.Option("--demo", help="Instead of MODEL: generated films, fitted on the spot.")
    ] = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Serve a model over HTTP, and learn entries that arrive, without training.

    SIGTERM and Ctrl-C end it once all requests are answered; SIGHUP reads the model file anew.

    Example: deepmf serve model.safetensors --port 8000

    Or: deepmf serve --demo
    """
    with needs_serve():
        from deepmf.serve.server import ServeOptions
        from deepmf.serve.server import serve as run_server
    if model is None and not demo:
        raise BadSetting("give a model file, such as deepmf fit writes, or --demo, which serves generated films")
    if model is not None and demo:
        raise BadSetting(f"--demo serves generated films instead of {model}; give one of them, not both")

    def announce(address: str) -> None:
        if as_json:
            show_json({"address": address, "process": os.getpid()})
        else:
            say(f"serving {'generated films' if demo else model} at {address} (its routes: {address}/docs)")

    with ExitStack() as stack:
        if model is None:
            from deepmf.files import temporary_folder
            from deepmf.serve.demo import write_demo_model

            model = stack.enter_context(temporary_folder(Path(gettempdir()))) / "films.safetensors"
            write_demo_model(model, seed=seed or 0)
        run_server(
            ServeOptions(
                model=str(model),
                database=database or default_database(model),
                host=host,
                port=port,
                keys=None if keys is None else str(keys),
                rate=rate,
                workers=workers,
                log_level=log_level,
            ),
            announce,
        )


def api_key(
    keys: Annotated[Path, typer.Argument(metavar="FILE", help="The file of keys; made where there is none.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the key is called in logs.")],
    role: Annotated[str, typer.Option("--role", metavar="read|write|rows|admin", help="What it may do.")] = "read",
    as_json: Json = False,
) -> None:
    """Make an API key for a service, add its hash to a file, and show it once.

    Example: deepmf api-key keys.txt --name phone --role write
    """
    from deepmf.serve.auth import add_key

    text = add_key(keys, name=name, role=role)
    if as_json:
        show_json({"name": name, "role": role, "key": text, "file": str(keys)})
    else:
        say(f"{text}\nis the key {name!r} ({role}); it is not stored, only its hash in {keys}")


def default_database(model: Path) -> str:
    """Return the file beside a model in which its service keeps entries."""
    return str(model.with_name(f"{model.name.removesuffix('.safetensors')}.entries.sqlite"))


@contextmanager
def needs_serve() -> Iterator[None]:
    """Say of a package that the service needs and that is missing how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependency("the service needs fastapi and others: pip install 'deepmf[serve]'") from error
