"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

DEFAULT_MODEL = "smollm2-135m"

Model = Annotated[
    str, typer.Option("--model", help="A name that 'minicache models list' knows, or a folder.")
]
LoadFormat = Annotated[
    Literal["auto", "dummy"],
    typer.Option("--load-format", help="dummy: random weights of the model's true size."),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"],
    typer.Option("--dtype", help="auto: bfloat16 where the processor is good at it."),
]
