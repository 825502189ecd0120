"""The decode kernels that ours is compared with, each behind the same small face: one call a KV
set.

A peer that is not installed raises `ImportError` and is left out of the table. Libraries without
types are called through `Any`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from minicache.bench.kernels.cases import DIM, KV_HEADS, PAGE, Cache, Sets
from minicache.bench.kernels.timing import Call
from minicache.kernels.flash_decode import decode_work, flash_decode

SCALE = DIM**-0.5
Peer = Callable[[Sets, Cache], list[Call]]


def ours(sets: Sets, cache: Cache) -> list[Call]:
    """Our kernel on pages, the work cut once a step and shared by the layers, as in the engine."""
    work = decode_work(sets.q, sets.k_pages, sets.tables[0], sets.lengths)

    def call(table: Tensor) -> Call:
        return lambda: (
            flash_decode(sets.q, sets.k_pages, sets.v_pages, table, sets.lengths, work=work).output
        )

    return [call(table) for table in sets.tables]


def ours_fixed_size(sets: Sets, cache: Cache) -> list[Call]:
    """Our kernel with pieces of 2048 tokens, the same bits in any batch; work cut once a step."""
    work = decode_work(sets.q, sets.k_pages, sets.tables[0], sets.lengths, split_size=2048)

    def call(table: Tensor) -> Call:
        return lambda: (
            flash_decode(sets.q, sets.k_pages, sets.v_pages, table, sets.lengths, work=work).output
        )

    return [call(table) for table in sets.tables]


def ours_with_cutting(sets: Sets, cache: Cache) -> list[Call]:
    """Our kernel, the cutting repeated in every call: what a step of one layer would pay."""

    def call(table: Tensor) -> Call:
        return lambda: flash_decode(sets.q, sets.k_pages, sets.v_pages, table, sets.lengths).output

    return [call(table) for table in sets.tables]


def flashinfer_tensor_cores(sets: Sets, cache: Cache) -> list[Call]:
    """FlashInfer's paged decode on tensor cores; planned on the host, once a step."""
    flashinfer: Any = import_module("flashinfer")
    calls: list[Call] = []
    workspace = torch.empty(256 * 2**20, dtype=torch.uint8, device=sets.q.device)
    host = [-(-n // PAGE) for n in sets.case.lengths]
    starts = torch.tensor([0, *itertools.accumulate(host)], dtype=torch.int32, device=sets.q.device)
    last = torch.tensor(
        [(n - 1) % PAGE + 1 for n in sets.case.lengths], dtype=torch.int32, device=sets.q.device
    )
    for table in sets.tables:
        indices = torch.cat([table[b, :n] for b, n in enumerate(host)])
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            workspace, "HND", use_cuda_graph=True, use_tensor_cores=True,
            paged_kv_indptr_buffer=starts.clone(), paged_kv_indices_buffer=indices.clone(),
            paged_kv_last_page_len_buffer=last.clone(),
        )  # fmt: skip
        wrapper.plan(
            starts, indices, last, sets.case.heads, KV_HEADS, DIM, PAGE,
            q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
        )  # fmt: skip
        calls.append(_bound(wrapper.run, sets.q, (sets.k_pages, sets.v_pages)))
        # Each wrapper plans into the workspace it is given; sharing one would overwrite the plan.
        workspace = torch.empty(256 * 2**20, dtype=torch.uint8, device=sets.q.device)
    return calls


def flashinfer_xqa(sets: Sets, cache: Cache) -> list[Call]:
    """FlashInfer's XQA decode."""
    decode: Any = import_module("flashinfer.decode")
    workspace = torch.zeros(256 * 2**20, dtype=torch.uint8, device=sets.q.device)
    return [
        _bound(
            decode.xqa_batch_decode_with_kv_cache,
            sets.q,
            (sets.k_pages, sets.v_pages),
            workspace,
            table,
            sets.lengths,
            max(sets.case.lengths),
            SCALE,
            1.0,
            kv_layout="HND",
        )  # fmt: skip
        for table in sets.tables
    ]


def flash_attention_3(sets: Sets, cache: Cache) -> list[Call]:
    """FlashAttention-3 on the same pages."""
    fa3: Any = import_module("fa3_fwd_interface")
    k_cache, v_cache = sets.k_pages.transpose(1, 2), sets.v_pages.transpose(1, 2)
    return [
        _bound(
            fa3.flash_attn_with_kvcache,
            sets.q[:, None],
            k_cache,
            v_cache,
            cache_seqlens=sets.lengths,
            page_table=table,
            causal=True,
        )  # fmt: skip
        for table in sets.tables
    ]


def _library(backend: SDPBackend) -> Peer:
    def peer(sets: Sets, cache: Cache) -> list[Call]:
        def call(pairs: list[tuple[Tensor, Tensor]]) -> Call:
            rows = [sets.q[:, :, None]] if sets.case.equal else list(sets.q[:, :, None].split(1))

            def attend() -> list[Tensor]:
                with sdpa_kernel(backend):
                    return [
                        scaled_dot_product_attention(q, k, v, enable_gqa=True)
                        for q, (k, v) in zip(rows, pairs, strict=True)
                    ]

            return attend

        return [call(pairs) for pairs in cache.contiguous(sets)]

    return peer


def flex_attention(sets: Sets, cache: Cache) -> list[Call]:
    """FlexAttention's decode kernel on contiguous keys; compiled for each shape, which takes a
    while.
    """
    if not sets.case.equal:
        raise NotImplementedError("a compilation for each length; left out for ragged batches")
    flex: Any = import_module("torch.nn.attention.flex_attention")
    torch.compiler.reset()
    compiled: Any = torch.compile(flex.flex_attention, dynamic=False)
    rows = [sets.q[:, :, None]] if sets.case.equal else list(sets.q[:, :, None].split(1))

    def call(pairs: list[tuple[Tensor, Tensor]]) -> Call:
        return lambda: [
            compiled(q, k, v, enable_gqa=True) for q, (k, v) in zip(rows, pairs, strict=True)
        ]

    return [call(pairs) for pairs in cache.contiguous(sets)]


def _bound(function: Callable[..., object], *args: Any, **options: Any) -> Call:
    return lambda: function(*args, **options)


PEERS: dict[str, Peer] = {
    "minicache": ours,
    "minicache, cutting in each call": ours_with_cutting,
    "minicache, fixed pieces of 2048": ours_fixed_size,
    "FlashInfer, tensor cores": flashinfer_tensor_cores,
    "FlashInfer XQA": flashinfer_xqa,
    "FlashAttention-3, pages": flash_attention_3,
    "torch SDPA cuDNN, contiguous": _library(SDPBackend.CUDNN_ATTENTION),
    "torch SDPA flash, contiguous": _library(SDPBackend.FLASH_ATTENTION),
    "FlexAttention, contiguous": flex_attention,
}
