"""Commands whose options are parsed where their work is done: the words are handed on unread."""

from __future__ import annotations

from importlib import import_module

import typer

_UNREAD = {"allow_extra_args": True, "ignore_unknown_options": True}


def add(app: typer.Typer, name: str, module: str, help: str) -> None:
    """Give `app` a command `name` that calls `main(words)` of `module`, imported only then."""

    @app.command(name, help=help, context_settings=_UNREAD, add_help_option=False)
    def hand_on(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction]
        raise typer.Exit(import_module(module).main(context.args) or 0)
