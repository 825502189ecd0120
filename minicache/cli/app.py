"""The commands' entrance: which there are, and how they end."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from minicache.cli import bench, demo, failure, generate, group, models, progress, record

app = typer.Typer(name="minicache", add_completion=False, rich_markup_mode=None)
app.command("demo")(demo.demo)
app.command("generate")(generate.generate)
app.add_typer(models.app)
app.add_typer(bench.app)
app.add_typer(record.app)
app.command("progress")(progress.progress)


def _show_version(wanted: bool) -> None:
    if wanted:
        from minicache import __version__

        typer.echo(f"minicache {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _global(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")
    ] = False,
) -> None:
    """Serve a small language model, watch the scheduler work, and learn how it is built."""
    _log(debug)
    group.show_help_alone(context)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave the process with its exit code. `--debug` raises instead."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words[:1] or bool(os.environ.get("MINICACHE_DEBUG"))
    try:
        code = app(words, prog_name="minicache", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output went away, as `head` does: nothing is wrong, nothing to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debug:
            raise
        print(f"minicache: {failure.sentence(error)}", file=sys.stderr)
        sys.exit(failure.exit_code(error))
    sys.exit(code if isinstance(code, int) else 0)


def _log(debug: bool) -> None:
    """Failures reach people as sentences; the log, tracebacks included, is for `--debug`."""
    log = logging.getLogger("minicache")
    log.addHandler(logging.StreamHandler() if debug else logging.NullHandler())
