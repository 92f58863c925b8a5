"""`deepmf serve`, `api-key`, `import` and `export-entries`: a service, its API keys, and the entries
that it receives."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepmf.cli.feature_files import ModelInput
from deepmf.cli.inputs import InputOptions, name_file, open_input, report_reading
from deepmf.cli.options import (
    FrameFile,
    FrameJson,
    Json,
    Seed,
    argument,
    option,
    with_option_groups,
)
from deepmf.cli.output import (
    STANDARD,
    check_frame_target,
    say,
    show_result,
    show_share,
    write_frames,
)
from deepmf.errors import BadSetting, DeepMFWarning, MissingDependency
from deepmf.files import polars

if TYPE_CHECKING:
    from deepmf.matrix.frames import LongEntries

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
    seed: Seed = None,
    as_json: Json = False,
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
    if reload_of:
        if model or demo:
            raise BadSetting("--reload-of reloads a running service; give no model")
        process = reload_service(reload_of)
        text = f"told process {process} to load its model and keys again; its log says if it did"
        show_result({"process": process}, text, as_json=as_json)
        return
    if not (model or demo):
        raise BadSetting("give a model file that deepmf fit wrote, or --demo")
    if model and demo:
        raise BadSetting(f"give {model} or --demo, not both")

    def announce(address: str) -> None:
        text = (
            f"serving {'generated films' if demo else model} at {address} (routes: {address}/docs)"
        )
        show_result({"address": address, "process": os.getpid()}, text, as_json=as_json)

    with ExitStack() as stack:
        if not model:
            model = Path(stack.enter_context(TemporaryDirectory()), "films.safetensors")
            write_demo_model(model, seed=seed or 0)
        run_server(
            ServeOptions(
                model=str(model),
                database=database or choose_database(model),
                host=host,
                port=port,
                keys=str(keys) if keys else None,
                workers=workers,
                log_level=log_level,
                pid_file=str(pid_file) if pid_file else None,
            ),
            announce,
        )


def api_key(
    keys: Annotated[Path, argument("FILE", "File of keys; created if it does not exist.")],
    name: Annotated[str, option("--name NAME", "Name of the key in logs.")],
    role: Annotated[str, option("--role read|write|rows|admin", "What the key may do.")] = "read",
    as_json: Json = False,
) -> None:
    """Make an API key for a service and show it once.

    The file stores only the hash of the key.

    Example: deepmf api-key keys.txt --name phone --role write
    """
    from deepmf.serve.auth import add_key

    text = add_key(keys, name=name, role=role)
    shown = f"{text}\nis the key {name!r} ({role}); {keys} stores only its hash"
    facts = {"name": name, "role": role, "key": text, "file": str(keys)}
    show_result(facts, shown, as_json=as_json)


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
    from deepmf.training.threads import use_threads

    ratings = generate(n_rows, n_columns, density=0.12, noise=0.7, seed=seed).matrix
    ratings = ratings.with_form(TableForm("person", "film", "stars"))
    # A network this small is no faster with more threads.
    with use_threads(1), warnings.catch_warnings(action="ignore", category=DeepMFWarning):
        model = OrdinalDMF(effort="quick", seed=seed, device="cpu", **settings).fit(ratings)
    model.save(path)


@with_option_groups(
    reading=(
        "row",
        "column",
        "value",
        "time",
        "weight",
        "separator",
        "missing",
        "decimal",
        "encoding",
    )
)
def import_entries(
    ratings: Annotated[
        Path,
        argument(
            "RATINGS",
            "Entries: csv, tsv, parquet, jsonl or MovieLens .dat, also compressed; - for csv on standard input.",
        ),
    ],
    url: Annotated[str, option("--url URL", "Address of the service: http://127.0.0.1:8000.")],
    api_key: Annotated[
        str | None, option("--api-key KEY", "API key with the role write.", envvar="DEEPMF_API_KEY")
    ] = None,
    *,
    reading: InputOptions,
    batch_size: Annotated[
        int, option("--batch N", "Entries in one request.", min=1, max=50_000)
        # each row and column is computed once a request, however many entries of it there are
    ] = 50_000,
    as_json: Json = False,
) -> None:
    """Send entries to a service.

    The service writes them without training. Known entries are replaced, and of repeated pairs the
    last stays. If the service refuses some entries, it writes the others, and the exit status is 2.
    Sending a file again changes nothing.

    Example: deepmf import ratings.csv --url http://127.0.0.1:8000
    """
    from deepmf.client import Client
    from deepmf.data.read import read_lines

    counts = {"entries": 0, "changed": 0, "refused": 0}
    with (
        open_input(ratings) as file,
        Client(url, api_key=api_key, timeout=120.0) as client,
        show_share("sending") as progress,
    ):
        lines = read_lines(file, reading.for_reader(None))
        for start in range(0, lines.n_entries, batch_size):
            part = _list_entries(lines.entries, slice(start, start + batch_size))
            written = client.write_entries(part)
            # the first ten are shown
            for refused in written.refused[: max(0, 10 - counts["refused"])]:
                say(
                    f"deepmf: {lines.locate(start + refused.line - 1)}: {refused.message}", err=True
                )
            counts["entries"] += written.n_lines
            counts["changed"] += written.n_changed
            counts["refused"] += written.n_refused
            progress(counts["entries"], lines.n_entries)
    report_reading(ratings, lines.notes, wide=False)
    same = counts["entries"] - counts["changed"] - counts["refused"]
    text = (
        f"{name_file(ratings)}: {counts['entries']:,} entries sent, {counts['changed']:,} written, "
        f"{same:,} unchanged, {counts['refused']:,} refused"
    )
    show_result({**counts, "version": written.version.model_dump()}, text, as_json=as_json)
    if counts["refused"]:
        raise typer.Exit(2)


def _list_entries(entries: LongEntries, part: slice) -> list[tuple[Any, Any, Any]]:
    """Return rows, columns, and values or fields of entries with times or weights; an absent date
    stays out."""
    from deepmf.matrix.extras import NO_TIME

    values, extras = entries.numbers[part].tolist(), entries.extras.take(part)
    if not extras.are_absent:
        fields: dict[str, list[Any]] = {"value": values}
        if extras.times is not None:
            fields["time"] = [None if time == NO_TIME else time for time in extras.times.tolist()]
        if extras.weights is not None:
            fields["weight"] = extras.weights.tolist()
        values = [
            dict(zip(fields, line, strict=True)) for line in zip(*fields.values(), strict=True)
        ]
    ids = (
        axis.labels.array[axis.positions[part]].tolist() for axis in (entries.rows, entries.columns)
    )
    return list(zip(*ids, values, strict=True))


@with_option_groups(source=("model",), files=(), reading=())
def export_entries(
    source: ModelInput,
    output: FrameFile,
    database: Database = None,
    row_features: Annotated[
        Path | None,
        option(
            "--new-row-features FILE",
            "Also write the row features added since training, in a format of the entries.",
        ),
    ] = None,
    column_features: Annotated[
        Path | None,
        option(
            "--new-column-features FILE", "Also write the column features added since training."
        ),
    ] = None,
    as_json: FrameJson = False,
) -> None:
    """Export all entries of a service for the next training.

    These are the training entries and those that the service has received since.

    Example: deepmf export-entries model.safetensors -o ratings.parquet
    """
    with require_serve():
        from deepmf.serve.snapshot import export_data

    from deepmf.matrix.frame_file import make_feature_frame
    from deepmf.matrix.frames import build_extra_series, build_label_series

    check_frame_target(output, inputs=source.paths)
    used_files = [*source.paths, Path(output)]
    axes = {"row": row_features, "column": column_features}
    targets = {axis: target for axis, target in axes.items() if target}
    for target in targets.values():
        check_frame_target(str(target), inputs=used_files)
        used_files.append(target)
    fitted = source.load()
    snapshot = export_data(fitted, database or choose_database(source.model))
    rows, columns, values = snapshot.entries
    form = fitted.entries_.train.form
    ids = build_label_series(rows), build_label_series(columns)
    frame = polars.DataFrame(dict(zip(form.names, (*ids, values), strict=True)))
    frame = frame.with_columns(build_extra_series(snapshot.extras, form))
    write_frames([frame], frame.schema, output, as_json=as_json)
    summary: dict[str, Any] = {"entries": len(frame), "file": output}
    words = [f"{len(frame):,} entries in {output}"]
    for axis, target in targets.items():
        features = getattr(snapshot, f"{axis}_features")
        summary[f"{axis}_features"] = 0
        if features is None:
            words.append(f"no {axis} features were added since training; {target} is not written")
            continue
        label = getattr(form, axis)
        if label in features.names:
            label = f"{label} id"
        described = make_feature_frame(features, label)
        write_frames([described], described.schema, str(target))
        summary[f"{axis}_features"] = len(features)
        words.append(f"features of {len(features):,} {axis}s in {target}")
    if output != STANDARD:
        show_result(summary, "\n".join(words), as_json=as_json)
