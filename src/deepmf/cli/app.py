"""The `deepmf` command: its subcommands, and how it reports errors and warnings."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import cache, partial
from typing import Annotated, Any, NoReturn, TextIO

import typer

from deepmf.cli.data import datasets, pack, split
from deepmf.cli.demo import demo
from deepmf.cli.evaluate import compare, evaluate
from deepmf.cli.fit import fit
from deepmf.cli.impute import impute
from deepmf.cli.inspect import inspect
from deepmf.cli.options import CommandGroup, GroupedCommand
from deepmf.cli.output import say
from deepmf.cli.predict import complete, predict
from deepmf.cli.process import (
    check_command,
    interrupt_on_signals,
    is_first,
    is_one_of_several,
    join_processes,
)
from deepmf.cli.recommend import explain, recommend, similar
from deepmf.cli.reproduce import reproduce
from deepmf.cli.serve import api_key, export_entries, import_entries, serve
from deepmf.cli.settings import settings
from deepmf.errors import DeepMFError, DeepMFWarning, UserError

# The base class of typer's errors about options and arguments, whichever library typer builds on.
_UsageError: Any = typer.BadParameter.__base__

# Errors of a full disk; files report theirs as CannotSave, so these come from standard output.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_INTERRUPTED = 130  # as shells do: 128 plus the number of the signal

app = typer.Typer(
    cls=CommandGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it fits into 80 columns, and starts faster
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"deepmf {version('deepmf')}")
        raise typer.Exit


@app.callback()
def show_help(
    context: typer.Context,
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """Matrices with missing entries: fit, predict, extend to new rows and columns.

    Example: deepmf fit ratings.csv -o model.safetensors
    """
    check_command(context.invoked_subcommand)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _command in (
    demo,
    pack,
    split,
    fit,
    settings,
    compare,
    evaluate,
    inspect,
    predict,
    recommend,
    explain,
    similar,
    complete,
    impute,
    serve,
    import_entries,
    export_entries,
    api_key,
    reproduce,
):
    _name = "import" if _command is import_entries else _command.__name__.replace("_", "-")
    app.command(_name, cls=GroupedCommand)(_command)

app.add_typer(datasets, name="datasets")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Exit codes: 0 success; 1 a bug; 2 wrong input, reported in one line; 130 Ctrl-C, 143 SIGTERM,
    129 SIGHUP. If the reader closes the pipe, the command ends quietly with 0. If torchrun started
    several processes, signals end each at once, and each reports its own error.
    """
    signals = nullcontext(list[int]()) if is_one_of_several() else interrupt_on_signals()
    with warnings.catch_warnings(), signals as arrived:
        warnings.simplefilter("always", DeepMFWarning)
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        code = _run(arguments)
    sys.exit(128 + arrived[0] if arrived and code == _INTERRUPTED else code)


def _run(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that lacks a character must not fail the command
            stream.reconfigure(errors="replace")
    try:
        with join_processes():
            code = _build_command()(arguments, prog_name="deepmf", standalone_mode=False)
        if sys.stdout is not None:  # it may be closed
            sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        return _discard(sys.stdout, code=0)
    except SystemExit as ending:  # typer's answer to a closed pipe
        is_pipe = isinstance(ending.__context__, BrokenPipeError)
        return _discard(sys.stdout, code=0) if is_pipe else int(ending.code or 0)
    except _UsageError as error:
        path = getattr(error.ctx, "command_path", "deepmf")
        return _complain(f"{error.format_message().rstrip('.')} (see {path} --help)", code=2)
    except UserError as error:
        text = str(error)
        if error.hint:
            text = f"{error.message}; {error.hint.command}"
        return _complain(text, code=2)
    except DeepMFError as error:
        return _complain(str(error), code=1)
    except Exception as error:  # noqa: BLE001 (the last resort)
        if isinstance(error, OSError) and error.errno in _FULL:
            _complain(f"standard output could not be written ({error.strerror})", code=2)
            return _discard(sys.stdout, code=2)
        if os.environ.get("DEEPMF_TRACEBACK"):
            traceback.print_exc()
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        return _complain(f"internal error: {text} (DEEPMF_TRACEBACK=1 shows where)", code=1)
    return int(code or 0)


@cache
def _build_command() -> Any:
    # Reading the signatures of all commands takes a tenth of a second.
    return typer.main.get_command(app)


def _complain(message: str, *, code: int) -> int:
    try:
        say(f"deepmf: {' '.join(message.splitlines())}", err=True)
    except OSError:  # standard error is full: the exit status tells it
        return _discard(sys.stderr, code=code)
    return code


def _discard(stream: TextIO, *, code: int) -> int:
    # The interpreter flushes the stream again when it exits: let it flush into nothing.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _show_warning(
    show: Any, message: Warning | str, category: type[Warning], *place: Any, **named: Any
) -> None:
    if not is_first():
        return
    if issubclass(category, DeepMFWarning):
        with suppress(OSError):  # standard error may be full or closed
            say(f"deepmf: warning: {' '.join(str(message).splitlines())}", err=True)
    else:
        show(message, category, *place, **named)
