"""`minicache demo`: the options; the demo itself is minicache.demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from minicache.cli import options


def demo(
    policy: Annotated[
        Literal["static", "prefill-first", "alternating", "mixed"],
        typer.Option(help="Which requests may share a step in the second run."),
    ] = "mixed",
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="Most tokens in a step of the second run: the chunk budget.")
    ] = 512,
    model: options.Model = options.DEFAULT_MODEL,
    load_format: options.LoadFormat = "auto",
    dtype: options.Dtype = "auto",
    out: Annotated[Path, typer.Option(help="Folder for timeline.svg and trace.json.")] = Path(
        "out"
    ),
    json: Annotated[Path | None, typer.Option(help="Also write the numbers to this file.")] = None,
) -> None:
    """Watch a long prompt freeze three chats, and chunks cure it."""
    from minicache.demo import Options, show

    raise typer.Exit(
        show(
            Options(
                policy=policy,
                max_num_batched_tokens=max_num_batched_tokens,
                model=model,
                load_format=load_format,
                dtype=dtype,
                out=out,
                json=json,
            )
        )
    )
