"""Generation by recomputing everything, which an engine exists to avoid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def greedy_generate(
    logits_of: Callable[[list[int]], Tensor],
    prompt: Sequence[int],
    max_tokens: int,
    stop_token: int | None = None,
) -> list[int]:
    """The likeliest next token, again and again, each time from the whole sequence.

    `logits_of`: all tokens so far → `(V,)`, the logits of the next one. The stop token is returned.
    """
    tokens = list(prompt)
    for _ in range(max_tokens):
        tokens.append(int(logits_of(tokens).argmax()))
        if tokens[-1] == stop_token:
            break
    return tokens[len(prompt) :]
