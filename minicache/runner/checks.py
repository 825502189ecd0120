"""Ids that are none: what a caller asked with, and what a sampler of one's own may choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index

from minicache.plan import PlanItem


def unknown_tokens(items: Sequence[PlanItem], vocabulary: int) -> dict[int, str]:
    """Inputs outside the vocabulary, which would read memory that is not the embedding's.

    By request number: which id, and the way out.
    """
    wrong: dict[int, str] = {}
    for item in items:
        if item.tokens and not 0 <= min(item.tokens) <= max(item.tokens) < vocabulary:
            bad = next(token for token in item.tokens if not 0 <= token < vocabulary)
            wrong[item.number] = (
                f"Token id {bad} is not in the model's vocabulary of {vocabulary}; "
                "encode the prompt with this model's tokenizer."
            )
    return wrong


def whole_tokens(chosen: Sequence[int], count: int) -> list[int]:
    """What a sampler chose, as plain integers. Raises `ValueError` unless there are `count`."""
    if len(chosen) != count:
        raise ValueError(
            f"The sampler chose {len(chosen)} tokens for {count} rows; it must choose one for each."
        )
    return [index(token) for token in chosen]


def impossible(tokens: Mapping[int, int], vocabulary: int) -> dict[int, str]:
    """Choices outside the vocabulary, which no text has. `tokens` and result by request number."""
    return {
        number: f"The sampler chose token {token}, but ids lie in [0, {vocabulary})."
        for number, token in tokens.items()
        if not 0 <= token < vocabulary
    }
