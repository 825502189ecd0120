"""Counted, not measured: no torch."""

from __future__ import annotations

from minicache.lab.cases.case import Case, Inputs


def _cost(
    name: str, about: str, queries: int, keys: int, heads: int, kv_heads: int, dim: int, size: int
) -> Case:
    def inputs() -> Inputs:
        return {
            "num_queries": queries,
            "num_keys": keys,
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "head_dim": dim,
            "bytes_per_element": size,
        }

    return Case(name, about, inputs)


CASES = (
    _cost(
        "one of everything",
        "One pair: one product and one weighted value, 4 FLOPs.",
        1,
        1,
        1,
        1,
        1,
        2,
    ),
    _cost("one query, eight keys", "Eight pairs.", 1, 8, 1, 1, 4, 2),
    _cost("four queries, four keys", "16 pairs: hidden ones are computed too.", 4, 4, 2, 2, 8, 2),
    _cost("eight queries, eight keys", "64 pairs a head.", 8, 8, 4, 4, 8, 2),
    _cost("four queries, eight keys", "The pairs are T · S.", 4, 8, 2, 2, 8, 2),
    _cost("one query, float32", "4 bytes a number.", 1, 8, 2, 2, 8, 4),
    _cost("smollm2-135m decodes at 8k", "9 query heads read 3 KV heads.", 1, 8192, 9, 3, 64, 2),
    _cost(
        "smollm2-135m reads 512 tokens",
        "A score matrix for each of the 9 query heads.",
        512,
        512,
        9,
        3,
        64,
        2,
    ),
)
