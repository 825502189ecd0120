"""One product a pair, for each head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from minicache.lab.cases.case import Case, Inputs
from minicache.lab.cases.tensors import fixed, numbers


def _scores(
    queries: int, keys: int, heads: int, dim: int, scale: float, **kind: Any
) -> Callable[[], Inputs]:
    return lambda: {
        "q": numbers(queries, heads, dim, seed=1, **kind),
        "k": numbers(keys, heads, dim, seed=2, **kind),
        "scale": scale,
    }


CASES = (
    Case("one query, one key", "2 · 3 = 6.", fixed(q=[[[2.0]]], k=[[[3.0]]], scale=1.0)),
    Case(
        "one query, three keys",
        "One row of scores, a column for each key.",
        fixed(q=[[[2.0]]], k=[[[1.0]], [[2.0]], [[3.0]]], scale=1.0),
    ),
    Case(
        "three queries, two keys",
        "The result is (H, T, S): a row for each query.",
        fixed(q=[[[1.0]], [[2.0]], [[3.0]]], k=[[[10.0]], [[20.0]]], scale=1.0),
    ),
    Case(
        "four numbers a head",
        "scale is 1/√4: the usual choice.",
        fixed(q=[[[1.0, 2.0, 3.0, 4.0]]], k=[[[1.0, 1.0, 1.0, 1.0]]], scale=0.5),
    ),
    Case(
        "two heads",
        "Head 0 of q meets head 0 of k only, and head 1 meets head 1.",
        fixed(q=[[[1.0], [10.0]]], k=[[[2.0], [3.0]]], scale=1.0),
    ),
    Case(
        "another scale",
        "The scale is an argument: some models do not use 1/√D.",
        fixed(q=[[[1.0, 1.0, 1.0, 1.0]]], k=[[[2.0, 2.0, 2.0, 2.0]]], scale=1.0),
    ),
    Case(
        "float64", "The result has the dtype of q.", _scores(2, 3, 1, 1, 1.0, dtype=torch.float64)
    ),
    Case(
        "nine heads of 64",
        "The real model's head size.",
        _scores(3, 5, 9, 64, 0.125),
        rtol=1e-4,
        atol=1e-5,
    ),
)
