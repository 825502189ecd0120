"""Aligned at the end, for whole prompts and for parts of one."""

from __future__ import annotations

from minicache.lab.cases.case import Case


def _mask(queries: int, keys: int, about: str) -> Case:
    name = f"queries: {queries}, keys: {keys}"
    return Case(name, about, lambda: {"num_queries": queries, "num_keys": keys})


CASES = (
    _mask(1, 1, "A token sees itself."),
    _mask(2, 2, "A whole prompt: the first token sees itself, the second sees both."),
    _mask(3, 3, "A whole prompt: a triangle."),
    _mask(1, 2, "One new token after one old: it is the last, so it sees both."),
    _mask(1, 4, "One new token after three old ones sees all four."),
    _mask(1, 9, "One new token after eight old ones sees all nine."),
    _mask(3, 8, "The last three tokens of eight: positions 5, 6 and 7."),
    _mask(5, 5, "A whole prompt of five."),
)
