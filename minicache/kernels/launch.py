"""From tensors to kernels: checks, workspace, and the two launches of an attention call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from minicache.kernels.attend import attend_kernel
from minicache.kernels.combine import combine_kernel
from minicache.kernels.reference import AttentionResult
from minicache.kernels.work import WorkList, launch_options

HEAD_DIMS = (16, 256)
"""The smallest and the largest head_dim the kernels take."""
_COMBINED_AT_ONCE = 64
"""Partial results times rows that a combine program loads at once."""


@dataclass(frozen=True, slots=True)
class Masking:
    """What is compiled into the kernel: 0 switches a feature off."""

    causal: bool = False
    """Rows of a program may see different keys. A decode's rows all see the same ones."""
    window: int = 0
    soft_cap: float = 0.0


def check_inputs(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor
) -> None:
    """Refuse what the kernels do not take. Raises `ValueError` in a sentence; reads no device
    value.
    """
    if k_pages.shape != v_pages.shape or k_pages.dim() != 4:
        raise ValueError(
            f"k_pages is {tuple(k_pages.shape)} and v_pages {tuple(v_pages.shape)}, but both "
            "must be (pages, kv heads, page size, head_dim)."
        )
    heads, kv_heads, dim = q.shape[-2], k_pages.shape[1], q.shape[-1]
    if heads % kv_heads:
        raise ValueError(
            f"There are {heads} query heads on {kv_heads} KV heads, but each KV head must serve "
            "the same number of query heads: use a multiple."
        )
    if dim != k_pages.shape[-1]:
        raise ValueError(
            f"q has head_dim {dim} and the pages have {k_pages.shape[-1]}; they must agree."
        )
    if not HEAD_DIMS[0] <= dim <= HEAD_DIMS[1]:
        raise ValueError(
            f"head_dim is {dim}, but the kernels take {HEAD_DIMS[0]} to {HEAD_DIMS[1]}; "
            "use the torch attention for other models."
        )
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32) or q.dtype != k_pages.dtype:
        raise ValueError(
            f"q is {q.dtype} and the pages are {k_pages.dtype}, but both must be the same one of "
            "float16, bfloat16 and float32."
        )
    if k_pages.stride() != v_pages.stride():
        raise ValueError(
            f"k_pages has strides {k_pages.stride()} and v_pages {v_pages.stride()}; "
            "they must agree."
        )
    if q.stride(-1) != 1 or k_pages.stride(-1) != 1 or v_pages.stride(-1) != 1:
        raise ValueError(
            "The head_dim of q and of the pages must be contiguous; call .contiguous()."
        )
    if page_table.shape[0] != lengths.shape[0]:
        raise ValueError(
            f"The page table has {page_table.shape[0]} rows and there are {lengths.shape[0]} "
            "lengths; give one row a sequence."
        )


def check_lengths(host_lengths: tuple[int, ...], columns: int, page_size: int) -> None:
    """Refuse lengths that reach past the page table, where they are known on the host."""
    if host_lengths and max(host_lengths) > columns * page_size:
        raise ValueError(
            f"A sequence has {max(host_lengths)} tokens, but a row of the page table holds "
            f"{columns} pages of {page_size}; give the table more columns."
        )


def launch_attention(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    work: WorkList,
    masking: Masking,
    scale: float,
    *,
    dependent: bool,
    workspace: tuple[Tensor, Tensor] | None = None,
    stamps: Tensor | None = None,
) -> AttentionResult:
    """Run the split and the combine kernel over a step's work items: `q: (T, H, D)`.

    `workspace` is made by `empty_workspace` and may hold anything. `stamps: (slots, K, 3)` int64,
    if given, receives (SM, start ns, end ns) of every program.
    """
    tokens, heads, dim = q.shape
    kv_heads, page_size = k_pages.shape[1:3]
    group = heads // kv_heads
    shape = work.shape
    attend: Any = attend_kernel  # Triton's jit functions take a grid in brackets, unknown to typing
    combine: Any = combine_kernel
    output = torch.empty((tokens, heads, dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((tokens, heads), dtype=torch.float32, device=q.device)
    partial_out, partial_lse = workspace or empty_workspace(work, kv_heads, dim, q.device)
    block_d = triton.next_power_of_2(dim)
    strided = work.slots < work.capacity
    attend[(kv_heads * work.slots,)](
        work.items, work.num_items, q, k_pages, v_pages, page_table, output, lse,
        partial_out, partial_lse, lse if stamps is None else stamps,
        q.stride(0), q.stride(1), *k_pages.stride()[:3], page_table.stride(0),
        heads, work.capacity, scale * math.log2(math.e),
        group, dim, block_d, page_size, shape.block_m, shape.tile, shape.stages, masking.causal,
        masking.window, masking.soft_cap, _precision(q.dtype), strided, dependent,
        stamps is not None,
        num_warps=shape.warps, num_stages=shape.stages,
        **launch_options(dependent, shape.registers),
    )  # fmt: skip
    if work.most_pieces > 1:
        most_rows = min(shape.block_m, tokens * group if masking.causal else group)
        rows = combine_rows(work.num_units * kv_heads, most_rows)
        combine[(triton.cdiv(most_rows, rows), kv_heads, work.num_units)](
            work.items, work.first_item, partial_out, partial_lse, output, lse, heads,
            work.capacity, group, dim, block_d, shape.block_m, rows,
            _COMBINED_AT_ONCE // rows, dependent,
            num_warps=4, **launch_options(dependent),
        )  # fmt: skip
    return AttentionResult(output, lse)


def combine_rows(groups: int, rows: int) -> int:
    """Rows a combine program takes: one where there are few, to share the work widely."""
    return 1 if groups * rows <= 1024 else min(triton.next_power_of_2(rows), 8)


def empty_workspace(
    work: WorkList, kv_heads: int, dim: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Room for every item's partial output (K, capacity, block_m, D) and lse, in float32."""
    rows = (kv_heads, work.capacity, work.shape.block_m)
    options: dict[str, Any] = {"dtype": torch.float32, "device": device}
    return torch.empty((*rows, dim), **options), torch.empty(rows, **options)


def _precision(dtype: torch.dtype) -> str:
    """A float32 dot is TF32 on a GPU unless it is asked for by name."""
    return "ieee" if dtype == torch.float32 else "tf32"
