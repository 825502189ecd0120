"""`minicache models`: which models there are, and where they lie on this machine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from minicache.cli import group
from minicache.cli.options import DEFAULT_MODEL

app = group.make("models", "Fetch and find models.")
Name = Annotated[str, typer.Argument(help="A name that 'minicache models list' shows.")]


@app.command()
def pull(name: Name = DEFAULT_MODEL) -> None:
    """Fetch a model once, check it, and convert it for fast loading."""
    from rich.console import Console

    from minicache import models

    if sys.stderr.isatty():
        with models.progress_bar(Console(stderr=True)) as report:
            folder = models.pull(name, report)
    else:
        folder = models.pull(name)
    print(f"{name} is ready in {folder}")


@app.command("list")
def list_models() -> None:
    """Show the models known by name, and which of them are here."""
    from minicache.models.catalog import CATALOG
    from minicache.models.store import local_folder

    for name, known in CATALOG.items():
        size = f"{known.config.num_parameters / 1e9:.2f} B weights"
        here = "here" if local_folder(name) is not None else "not pulled"
        print(f"{name:<16}{size:<18}{known.licence:<22}{here}")


@app.command()
def path(name: Name = DEFAULT_MODEL) -> None:
    """Print the folder of a model that is here."""
    from minicache import models

    print(models.path(name))
