"""`deepmf serve` and `deepmf api-key`: serve a model over HTTP, and make its API keys."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from deepmf.cli import options
from deepmf.cli.options import argument, option
from deepmf.cli.output import say, show_json
from deepmf.errors import BadSetting, DeepMFWarning, MissingDependency

Database = Annotated[
    str | None,
    option(
        "--database URL",
        "Database of the entries: a SQLite file or postgresql://...; default: MODEL.entries.sqlite.",
    ),
]


def serve(
    model: Annotated[Path | None, argument("MODEL", "Model file.")] = None,
    host: Annotated[str, option("--host ADDRESS", "Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("--port N", "Port to listen on; 0 for any free one.")] = 8000,
    database: Database = None,
    keys: Annotated[
        Path | None,
        option(
            "--keys FILE",
            "File of API keys (deepmf api-key); required if others can reach the address.",
        ),
    ] = None,
    workers: Annotated[int, option("--workers N", "Number of processes.")] = 1,
    log_level: Annotated[
        str, option("--log-level info|warning|error", "Lowest level that is logged.")
    ] = "info",
    pid_file: Annotated[
        Path | None, option("--pid-file FILE", "File for the process id, for --reload-of.")
    ] = None,
    reload_of: Annotated[
        Path | None,
        option(
            "--reload-of FILE",
            "Tell the service with this pid file to load its model and keys again, and end.",
        ),
    ] = None,
    demo: Annotated[
        bool, option("--demo", "Serve a model of generated films instead of MODEL.")
    ] = False,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Serve a model over HTTP, and add entries as they arrive.

    Ctrl-C and SIGTERM stop the service after the running requests; SIGHUP reloads the model and the
    keys.

    Example: deepmf serve model.safetensors --port 8000

    Or: deepmf serve --demo
    """
    with require_serve():
        from deepmf.serve.pid_file import reload_service
        from deepmf.serve.server import ServeOptions, serve as run_server
    if reload_of is not None:
        if model is not None or demo:
            raise BadSetting("--reload-of reloads a running service; give no model")
        process = reload_service(reload_of)
        if as_json:
            show_json({"process": process})
        else:
            say(f"told process {process} to load its model and keys again; its log says if it did")
        return
    if model is None and not demo:
        raise BadSetting("give a model file that deepmf fit wrote, or --demo")
    if model is not None and demo:
        raise BadSetting(f"give {model} or --demo, not both")

    def announce(address: str) -> None:
        text = (
            f"serving {'generated films' if demo else model} at {address} (routes: {address}/docs)"
        )
        if as_json:
            show_json({"address": address, "process": os.getpid()})
        else:
            say(text)

    with ExitStack() as stack:
        if model is None:
            model = Path(stack.enter_context(TemporaryDirectory()), "films.safetensors")
            write_demo_model(model, seed=seed or 0)
        run_server(
            ServeOptions(
                model=str(model),
                database=database or choose_database(model),
                host=host,
                port=port,
                keys=None if keys is None else str(keys),
                workers=workers,
                log_level=log_level,
                pid_file=None if pid_file is None else str(pid_file),
            ),
            announce,
        )


def api_key(
    keys: Annotated[Path, argument("FILE", "File of keys; created if it does not exist.")],
    name: Annotated[str, option("--name NAME", "Name of the key in logs.")],
    role: Annotated[str, option("--role read|write|rows|admin", "What the key may do.")] = "read",
    as_json: options.Json = False,
) -> None:
    """Make an API key for a service and show it once.

    The file stores only the hash of the key.

    Example: deepmf api-key keys.txt --name phone --role write
    """
    from deepmf.serve.auth import add_key

    text = add_key(keys, name=name, role=role)
    shown = f"{text}\nis the key {name!r} ({role}); {keys} stores only its hash"
    if as_json:
        show_json({"name": name, "role": role, "key": text, "file": str(keys)})
    else:
        say(shown)


def choose_database(model: Path) -> str:
    """Return the database file beside a model in which its service stores entries."""
    return str(model.with_name(f"{model.name.removesuffix('.safetensors')}.entries.sqlite"))


@contextmanager
def require_serve() -> Iterator[None]:
    """Turn a missing package of the service into an error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "the service needs more packages; install them with pip install 'deepmf[serve]'"
        ) from error


def write_demo_model(
    path: Path, *, seed: int, n_rows: int = 600, n_columns: int = 300, **settings: Any
) -> None:
    """Fit OrdinalDMF with some settings to generated ratings, and write its file."""
    from deepmf.data.synthetic import generate
    from deepmf.matrix.table_form import TableForm
    from deepmf.models.ordinal.model import OrdinalDMF
    from deepmf.training.runtime import use_threads

    ratings = generate(n_rows, n_columns, density=0.12, noise=0.7, seed=seed).matrix
    ratings = ratings.with_form(TableForm("person", "film", "stars"))
    # A network this small is no faster with more threads.
    with use_threads(1), warnings.catch_warnings(action="ignore", category=DeepMFWarning):
        model = OrdinalDMF(effort="quick", seed=seed, device="cpu", **settings).fit(
            ratings, progress=False
        )
    model.save(path)
