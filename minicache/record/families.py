"""What is recorded of the kernels: time against splits, placement on the SMs, chunk rates.

Each family maps the name of a part to a function that measures it; a part takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from minicache.bench.kernels.cases import KV_HEADS, Cache, Case, Sets
from minicache.bench.kernels.chunks import CHUNKS, bench_chunk
from minicache.bench.kernels.peers import PEERS
from minicache.bench.kernels.timing import Call, Timing, race
from minicache.kernels.flash_decode import decode_work, flash_decode

Part = Callable[[], dict[str, Any]]
CONTEXTS = tuple(1024 << i for i in range(8))
BATCHES = (1, 4, 16, 64)
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_TOKENS = 64 * 8192
PLACEMENTS = ((1, 32768, 8), (1, 32768, 16), (1, 32768, 64), (1, 32768, None), (64, 2048, None))
"""(batch, context, splits); None leaves the choice to the heuristic."""


def splits(cache: Cache) -> dict[str, Part]:
    """Microseconds of a decode against the number of splits, with the heuristic's and SDPA's
    beside.
    """
    return {
        f"{batch}x{context}": lambda batch=batch, context=context: _splits(cache, batch, context)
        for batch in BATCHES
        for context in CONTEXTS
        if batch * context <= MOST_TOKENS
    }


def _splits(cache: Cache, batch: int, context: int) -> dict[str, Any]:
    sets = cache.sets(Case("splits", (context,) * batch))
    calls = {str(n): _with_splits(sets, n) for n in SPLITS if n * 64 <= context}
    calls["heuristic"] = _with_splits(sets, None)
    for name in ("torch SDPA cuDNN, contiguous", "torch SDPA flash, contiguous"):
        calls[name] = PEERS[name](sets, cache)
    timings = race(calls, rounds=3, replays=5)
    return {
        "batch": batch, "context": context, "kv_bytes": sets.case.kv_bytes,
        "us": _rounded(timings),
    }  # fmt: skip


def _with_splits(sets: Sets, count: int | None) -> list[Call]:
    work = decode_work(sets.q, sets.k_pages, sets.tables[0], sets.lengths, num_splits=count)

    def call(table: torch.Tensor) -> Call:
        return lambda: flash_decode(
            sets.q, sets.k_pages, sets.v_pages, table, sets.lengths, work=work
        )

    return [call(table) for table in sets.tables]


def _rounded(timings: Mapping[str, Timing]) -> dict[str, list[float]]:
    """Median, lower and upper quartile, in microseconds."""
    return {name: [round(x, 2) for x in timing] for name, timing in timings.items()}


def placement(cache: Cache) -> dict[str, Part]:
    """Which SM ran each program, from when to when, in nanoseconds after the first began."""

    def part(batch: int, context: int, count: int | None) -> Part:
        return lambda: _placement(cache, batch, context, count)

    return {f"{b}x{n}, {count or 'heuristic'}": part(b, n, count) for b, n, count in PLACEMENTS}


def _placement(cache: Cache, batch: int, context: int, count: int | None) -> dict[str, Any]:
    sets = cache.sets(Case("placement", (context,) * batch))
    work = decode_work(sets.q, sets.k_pages, sets.tables[0], sets.lengths, num_splits=count)
    stamps = torch.zeros((work.slots * KV_HEADS, 3), dtype=torch.int64, device=sets.q.device)
    for table in [*sets.tables, *sets.tables]:  # the last of several: warm code, cold keys
        flash_decode(
            sets.q, sets.k_pages, sets.v_pages, table, sets.lengths, work=work, stamps=stamps
        )
        torch.cuda.synchronize()
    busy = int(work.num_items) * KV_HEADS
    found = stamps[: min(busy, stamps.shape[0])].cpu()
    found[:, 1:] -= found[:, 1].min().item()
    return {
        "batch": batch, "context": context, "splits": count, "items": int(work.num_items),
        "kv_heads": KV_HEADS, "sm": found[:, 0].tolist(), "start": found[:, 1].tolist(),
        "end": found[:, 2].tolist(),
        "us": _rounded(race({"call": _with_splits(sets, count)}, rounds=3)),
    }  # fmt: skip


def chunks(cache: Cache) -> dict[str, Part]:
    """Chunk attention: microseconds, and the operations they did."""
    return {
        f"{tokens} at {context}": lambda tokens=tokens, context=context: _chunk(
            cache, tokens, context
        )
        for tokens, context in CHUNKS
    }


def _chunk(cache: Cache, tokens: int, context: int) -> dict[str, Any]:
    row = bench_chunk(cache, tokens, context)
    return {
        "tokens": tokens, "context": context, "flops": row.flops, "us": _rounded(row.timings),
    }  # fmt: skip


FAMILIES: dict[str, Callable[[Cache], dict[str, Part]]] = {
    "splits": splits,
    "placement": placement,
    "chunks": chunks,
}
