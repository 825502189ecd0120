"""Commands that hold other commands."""

from __future__ import annotations

import typer


def make(name: str, help: str) -> typer.Typer:
    """A group that shows its help when it is called without a command."""
    app = typer.Typer(name=name, help=help, rich_markup_mode=None)

    @app.callback(invoke_without_command=True, help=help)
    def alone(context: typer.Context) -> None:  # pyright: ignore[reportUnusedFunction]
        show_help_alone(context)

    return app


def show_help_alone(context: typer.Context) -> None:
    """Print the help of a group that was called without a command, and end there."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit
