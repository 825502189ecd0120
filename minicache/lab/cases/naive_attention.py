"""Hand-sized attention first, then the real model's shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minicache.lab.cases.case import Case, Inputs, call_in_order
from minicache.lab.cases.tensors import fixed, numbers

REFUSED = "refused with a ValueError"


def refusal(function: Callable[..., Any], inputs: Inputs) -> Any:
    """What a case about a refusal compares: whether a ValueError was raised."""
    try:
        return call_in_order(function, inputs)
    except ValueError:
        return REFUSED


def _attention(
    name: str, about: str, queries: int, keys: int, heads: int, kv_heads: int, dim: int = 2
) -> Case:
    def inputs() -> Inputs:
        return {
            "q": numbers(queries, heads, dim, seed=5),
            "k": numbers(keys, kv_heads, dim, seed=6),
            "v": numbers(keys, kv_heads, dim, seed=7),
            "scale": dim**-0.5,
        }

    return Case(name, about, inputs, rtol=1e-4, atol=1e-5)


CASES = (
    Case(
        "one query, one key",
        "With one key to look at, the result is its value.",
        fixed(q=[[[1.0, 0.0]]], k=[[[1.0, 0.0]]], v=[[[5.0, 6.0]]], scale=1.0),
    ),
    Case(
        "two keys that fit alike",
        "Equal scores: the result is the mean of the two values.",
        fixed(
            q=[[[0.0, 0.0]]],
            k=[[[1.0, 2.0]], [[3.0, 4.0]]],
            v=[[[2.0, 0.0]], [[4.0, 8.0]]],
            scale=1.0,
        ),
    ),
    _attention("a prompt of three", "T = S: the first token sees only itself.", 3, 3, 1, 1),
    _attention("the last two of four", "T < S: the mask is aligned at the end.", 2, 4, 1, 1),
    _attention("one new token", "T = 1: a decode step sees everything.", 1, 5, 1, 1),
    _attention("two heads, one key", "Each query head has a KV head of its own.", 1, 1, 2, 2),
    _attention(
        "four heads on two",
        "Query heads 0 and 1 share KV head 0; 2 and 3 share KV head 1.",
        1,
        3,
        4,
        2,
    ),
    _attention(
        "two heads, a prompt", "Heads and queries must not be mixed up in the result.", 3, 3, 2, 2
    ),
    _attention(
        "nine heads on three",
        "The real model's shape: 9 query heads on 3 KV heads of 64.",
        3,
        6,
        9,
        3,
        64,
    ),
    Case(
        "ten heads on four",
        "10 query heads cannot share 4 KV heads evenly: raise a ValueError that says so.",
        _attention("", "", 1, 2, 10, 4).inputs,
        call=refusal,
    ),
)
