"""Weights that sum to one, for scores of any size."""

from __future__ import annotations

from minicache.lab.cases.case import Case
from minicache.lab.cases.tensors import fixed, numbers

INF = float("inf")
CASES = (
    Case("one score", "One score takes all the weight.", fixed(scores=[[7.0]])),
    Case("two equal scores", "Half each.", fixed(scores=[[3.0, 3.0]])),
    Case(
        "three scores",
        "exp(0), exp(1), exp(2), divided by their sum.",
        fixed(scores=[[0.0, 1.0, 2.0]]),
    ),
    Case(
        "a hidden key",
        "exp(-inf) is 0: a hidden key gets no weight.",
        fixed(scores=[[1.0, 2.0, -INF]]),
    ),
    Case("large scores", "exp(100) is more than float32 can hold.", fixed(scores=[[100.0, 101.0]])),
    Case(
        "two rows",
        "Each row sums to 1 by itself.",
        fixed(scores=[[0.0, 1.0], [2.0, 0.0]]),
    ),
    Case(
        "rows of very different size",
        "The largest score of one row says nothing about the other.",
        fixed(scores=[[0.0, 1.0, 2.0], [200.0, 201.0, 199.0]]),
    ),
    Case(
        "all scores far below zero",
        "A hidden key (-inf) stays hidden, however low the others are.",
        fixed(scores=[[-100000.0, -100001.0, -INF]]),
    ),
    Case("one row of nine", "A longer row.", lambda: {"scores": numbers(1, 9, seed=3)}),
    Case(
        "heads, queries, keys",
        "The last dimension is the keys, whatever comes before.",
        lambda: {"scores": numbers(2, 3, 4, seed=4)},
    ),
)
