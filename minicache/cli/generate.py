"""`minicache generate`: one prompt in, text out as it comes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from minicache.cli import options


def generate(
    prompt: Annotated[str, typer.Argument(help="What to say to the model.")],
    model: options.Model = options.DEFAULT_MODEL,
    max_tokens: Annotated[int, typer.Option(help="Stop after this many tokens.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Choose among this many tokens.")] = None,
    top_p: Annotated[float, typer.Option(help="Choose within this much probability.")] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")
    ] = False,
    load_format: options.LoadFormat = "auto",
    dtype: options.Dtype = "auto",
) -> None:
    """Let the model answer one prompt, streamed to standard output."""
    from minicache import LLM, SamplingParams
    from minicache.demo.printable import printable

    show = printable if sys.stdout.isatty() else str
    params = SamplingParams(
        max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    with LLM(model, load_format=load_format, dtype=dtype, max_num_seqs=1) as llm:
        words = llm.tokenizer.encode(prompt) if raw else llm.tokenizer.chat(_said(prompt))
        for delta in llm.stream(words, params):
            print(show(delta.text), end="", flush=True)
    print()


def _said(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]
