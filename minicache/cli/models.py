"""`minicache models`: which models there are, and where they lie on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from minicache.cli import group
from minicache.cli.options import DEFAULT_MODEL

app = group.make("models", "Fetch and find models.")
Name = Annotated[str, typer.Argument(help="A name that 'minicache models list' shows.")]


@app.command()
def pull(name: Name = DEFAULT_MODEL) -> None:
    """Fetch a model once, check it, and convert it for fast loading."""
    from minicache import models

    print(models.pull(name))


@app.command("list")
def list_models() -> None:
    """Show the models that can be fetched, and which of them are here."""
    from minicache import models

    for model in models.list():
        print(model)


@app.command()
def path(name: Name = DEFAULT_MODEL) -> None:
    """Print the folder of a model that is here."""
    from minicache import models

    print(models.path(name))
