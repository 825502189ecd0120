"""Generation with a fake model whose next token is easy to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from minicache.lab.cases.case import Case, Inputs, call_in_order


class FakeModel:
    """A model of ten tokens with a simple rule. It notes how long each sequence was."""

    def __init__(self, rule: str, next_token: Callable[[list[int]], int]) -> None:
        """`rule` is what a reader sees; `next_token` works on the tokens so far."""
        self.rule = rule
        self.next_token = next_token
        self.lengths: list[int] = []

    def __call__(self, tokens: list[int]) -> Tensor:
        """`(10,)`: the largest logit is at the token that follows `tokens`."""
        self.lengths.append(len(tokens))
        logits = torch.zeros(10)
        logits[self.next_token(list(tokens))] = 1.0
        return logits

    def __repr__(self) -> str:
        """For the failing case."""
        return f"a model of ten tokens: {self.rule}"

    def __eq__(self, other: object) -> bool:
        """Two models of one rule are alike, however often they were asked."""
        return isinstance(other, FakeModel) and self.rule == other.rule


def next_number() -> FakeModel:
    """The next token is the last one plus one."""
    return FakeModel("the next token is the last one plus 1", lambda tokens: (tokens[-1] + 1) % 10)


def last_digit_of_sum() -> FakeModel:
    """The next token depends on every token before it."""
    return FakeModel(
        "the next token is the last digit of the sum of all", lambda tokens: sum(tokens) % 10
    )


def _generation(
    name: str,
    about: str,
    model: Callable[[], FakeModel],
    prompt: list[int],
    max_tokens: int,
    stop: int | None,
    **more: Any,
) -> Case:
    def inputs() -> Mapping[str, Any]:
        return {
            "logits_of": model(),
            "prompt": prompt.copy(),
            "max_tokens": max_tokens,
            "stop_token": stop,
        }

    return Case(name, about, inputs, **more)


def with_lengths(function: Callable[..., Any], inputs: Inputs) -> Any:
    """The result, and how long the sequence was at each call of the model."""
    return call_in_order(function, inputs), inputs["logits_of"].lengths


CASES = (
    _generation("one token", "1 is followed by 2.", next_number, [1], 1, None),
    _generation(
        "three tokens", "Each new token is part of the next question.", next_number, [4], 3, None
    ),
    _generation(
        "a longer prompt",
        "The next token follows the last one of the prompt.",
        next_number,
        [7, 3],
        2,
        None,
    ),
    _generation(
        "the whole sequence matters",
        "The model must see all tokens, each time.",
        last_digit_of_sum,
        [1, 2, 3],
        3,
        None,
    ),
    _generation(
        "a stop token",
        "Generation ends with the stop token, which is returned.",
        next_number,
        [2],
        6,
        5,
    ),
    _generation(
        "the stop token is in the prompt",
        "Only a new token can stop it.",
        next_number,
        [5, 1],
        2,
        5,
    ),
    _generation(
        "one call a token",
        "No call of the model whose result nobody uses.",
        next_number,
        [1, 2],
        3,
        None,
        call=with_lengths,
    ),
)
