"""The two engines of the demo: the same model and pool, one with whole prompts, one with chunks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import NamedTuple

from minicache.demo.options import MAX_NUM_SEQS, Options
from minicache.engine import Engine
from minicache.tokenizer import Tokenizer

NUM_PAGES = 512
"""Room for 8,192 tokens: more than everybody needs, so that the runs differ in scheduling alone."""


class Run(Enum):
    """Which of the two. The value is its key in the JSON file."""

    BEFORE = "before"
    AFTER = "after"


class Served(NamedTuple):
    """An engine that is ready, and what is needed to write prompts for it."""

    engine: Engine
    tokenizer: Tokenizer | None
    vocab_size: int


Opener = Callable[[Options, Run], AbstractContextManager[Served]]
"""Makes the engine of a run; tests give one without a model."""


@contextmanager
def open_model(options: Options, run: Run) -> Generator[Served]:
    """The real engine, closed at the end. Loads torch and the model's weights."""
    from minicache import LLM

    whole = run is Run.BEFORE
    # Both start with an empty cache: a prefix hit would make the second run look better.
    with LLM(
        options.model,
        device=options.device,
        dtype=options.dtype,
        load_format=options.load_format,
        num_pages=NUM_PAGES,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=options.max_num_batched_tokens,
        batching="mixed" if whole else options.policy,
        chunked_prefill=not whole,
        prefix_caching=False,
    ) as llm:
        yield Served(llm.engine, llm.engine.tokenizer, llm.config.vocab_size)


def title(run: Run, options: Options) -> str:
    """How a run schedules, in a few words."""
    if run is Run.BEFORE:
        return "Whole-prompt prefill"
    return f"{options.policy.capitalize()}, budget {options.max_num_batched_tokens:,} tokens"
