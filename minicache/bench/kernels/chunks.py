"""Chunk attention over pages: TFLOP/s of visible pairs, ours beside the libraries'."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from minicache.bench.kernels.cases import DIM, KV_HEADS, PAGE, Cache, Case, Sets
from minicache.bench.kernels.timing import Call, Timing, race
from minicache.kernels.chunk_prefill import chunk_flops, chunk_prefill, chunk_work
from minicache.kernels.merged_prefill import merged_chunk
from minicache.kernels.reference import AttentionResult, attend, gather

HEADS = 32
SCALE = DIM**-0.5
CHUNKS = (
    (8192, 8192), (32768, 32768), (8192, 32768), (2048, 32768), (512, 32768), (64, 32768),
    (2048, 131072), (512, 131072), (64, 131072),
)  # fmt: skip
"""(query tokens, context with them): the tokens are the last ones."""


class ChunkRow(NamedTuple):
    """One chunk shape's measurements."""

    tokens: int
    context: int
    flops: float
    timings: dict[str, Timing]
    errors: dict[str, float]
    """Relative error of some rows against float64, of those that give lse or output by row."""


def triton_chunk(q: Tensor, sets: Sets) -> Call:
    """Our split kernel, on pages; the work cut once a step."""
    starts = torch.tensor([0, q.shape[0]], dtype=torch.int32, device=q.device)
    table = sets.tables[0]
    work = chunk_work(q, sets.k_pages, table, starts, sets.lengths, q.shape[0])
    return lambda: (
        chunk_prefill(
            q, sets.k_pages, sets.v_pages, table, starts, sets.lengths, q.shape[0], work=work
        ).output
    )


def merged(q: Tensor, sets: Sets) -> Call:
    """Past and present by cuDNN, merged; the gather of the pages is in the time."""
    length = sets.case.lengths[0]
    return lambda: (
        merged_chunk(q, sets.k_pages, sets.v_pages, sets.tables[0][0], length, SCALE).output
    )


def flashinfer_fa2(q: Tensor, sets: Sets) -> Call:
    """FlashInfer's paged prefill."""
    flashinfer: Any = import_module("flashinfer")
    workspace = torch.empty(512 * 2**20, dtype=torch.uint8, device=q.device)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND", backend="fa2")
    pages = -(-sets.case.lengths[0] // PAGE)

    def numbers(*values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=q.device)

    last = (sets.case.lengths[0] - 1) % PAGE + 1
    wrapper.plan(
        numbers(0, q.shape[0]), numbers(0, pages), sets.tables[0][0], numbers(last),
        HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type=q.dtype, kv_data_type=q.dtype,
    )  # fmt: skip
    return lambda: wrapper.run(q, (sets.k_pages, sets.v_pages))


def sdpa_flash(q: Tensor, sets: Sets) -> Call:
    """Torch's FlashAttention-2 on contiguous keys, aligned at the end."""
    bias: Any = import_module("torch.nn.attention.bias")
    attention: Any = torch.nn.functional.scaled_dot_product_attention
    length = sets.case.lengths[0]
    k, v = _contiguous(sets, length)
    queries = q.transpose(0, 1)[None]
    mask = bias.causal_lower_right(q.shape[0], length)

    def call() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return attention(queries, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)

    return call


def flash_attention_3(q: Tensor, sets: Sets) -> Call:
    """FlashAttention-3 on contiguous keys."""
    fa3: Any = import_module("fa3_fwd_interface")
    k, v = (x.transpose(1, 2) for x in _contiguous(sets, sets.case.lengths[0]))
    return lambda: fa3.flash_attn_func(q[None], k, v, causal=True)


def _contiguous(sets: Sets, length: int) -> tuple[Tensor, Tensor]:
    pages = (sets.k_pages, sets.v_pages)
    keys, values = (gather(p, sets.tables[0][0], length)[None].contiguous() for p in pages)
    return keys, values


CONTESTANTS: dict[str, Callable[[Tensor, Sets], Call]] = {
    "minicache Triton, pages": triton_chunk,
    "minicache merged, pages": merged,
    "FlashInfer fa2, pages": flashinfer_fa2,
    "torch SDPA flash, contiguous": sdpa_flash,
    "FlashAttention-3, contiguous": flash_attention_3,
}


def bench_chunk(cache: Cache, tokens: int, context: int) -> ChunkRow:
    """Time all contestants that are installed on one chunk shape."""
    sets = cache.sets(Case("chunk", (context,)))
    q = cache.random((tokens, HEADS, DIM))
    rows = sorted({0, 1, tokens // 2, tokens - 1})
    truth = _some_rows(q, sets, rows)
    calls: dict[str, list[Call]] = {}
    errors: dict[str, float] = {}
    for name, make in CONTESTANTS.items():
        try:
            call = make(q, sets)
            errors[name] = _error(call(), rows, truth)
            calls[name] = [call]
        except ImportError:
            continue
    timings = race(calls, rounds=3, replays=3)
    return ChunkRow(tokens, context, chunk_flops(tokens, context, HEADS, DIM), timings, errors)


def _some_rows(q: Tensor, sets: Sets, rows: list[int]) -> AttentionResult:
    """The truth for a few query rows, in float64."""
    context = sets.case.lengths[0]
    keys = gather(sets.k_pages, sets.tables[0][0], context).double()
    values = gather(sets.v_pages, sets.tables[0][0], context).double()
    found: list[tuple[Tensor, Tensor]] = []
    for row in rows:
        seen = context - q.shape[0] + row + 1
        one = q[row : row + 1].double()
        found.append(attend(one, keys[:, :seen], values[:, :seen], SCALE))
    return AttentionResult(torch.cat([o for o, _ in found]), torch.cat([n for _, n in found]))


def _error(output: object, rows: list[int], truth: AttentionResult) -> float:
    if not isinstance(output, Tensor):
        return math.nan
    got = output.reshape(-1, HEADS, DIM)[rows].double()
    return float((got - truth.output).norm() / truth.output.norm())
