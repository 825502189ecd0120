"""What both are asked: random tokens of fixed seed, so that nothing depends on a text at hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PROMPTS = 24
SLOTS = 8
SHORTEST, LONGEST = 8, 128


class Queue(NamedTuple):
    """Requests that are there at once."""

    prompts: list[list[int]]
    counts: list[int]
    """Tokens each of them asks for."""


def mixed_queue(vocabulary: int, seed: int = 0) -> Queue:
    """24 prompts; their lengths, and those of their outputs, are uniform in [8, 128]."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(SHORTEST, LONGEST, PROMPTS, endpoint=True)
    counts = rng.integers(SHORTEST, LONGEST, PROMPTS, endpoint=True)
    return Queue([one_prompt(n, vocabulary, seed + n) for n in lengths.tolist()], counts.tolist())


def one_prompt(length: int, vocabulary: int, seed: int = 0) -> list[int]:
    """`length` random ids, none of the first 32, which are often special tokens."""
    rng = np.random.default_rng(seed)
    return rng.integers(32, vocabulary, length).tolist()
