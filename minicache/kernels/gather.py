# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalOperand=false, reportReturnType=false
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""Copy the pages of one sequence into contiguous memory, for library kernels that know no pages."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["length"])
def gather_kernel(
    k_pages, v_pages, table_row, k_out, v_out, length,
    k_page, k_head, k_token, v_page, v_head, v_token,
    D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Grid (tiles, KV heads): one tile of tokens of one head, keys and values."""
    tokens = tl.program_id(0) * TILE + tl.arange(0, TILE)
    head = tl.program_id(1).to(tl.int64)
    dims = tl.arange(0, BLOCK_D)
    mask = (tokens < length)[:, None] & (dims[None, :] < D)
    pages = tl.load(table_row + tokens // PAGE, mask=tokens < length, other=0).to(tl.int64)
    offset = tokens % PAGE
    target = (head * length + tokens)[:, None] * D + dims[None, :]
    k_rows = pages * k_page + head * k_head + offset * k_token
    keys = tl.load(k_pages + k_rows[:, None] + dims[None, :], mask=mask)
    v_rows = pages * v_page + head * v_head + offset * v_token
    values = tl.load(v_pages + v_rows[:, None] + dims[None, :], mask=mask)
    tl.store(k_out + target, keys, mask=mask)
    tl.store(v_out + target, values, mask=mask)


def gather_kv(
    k_pages: Tensor, v_pages: Tensor, table_row: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """The first `length` tokens of a sequence: `(K, length, D)` keys and values. Pages `(P, K, N,
    D)`, `table_row: (C,)` int32.
    """
    kv_heads, page_size, dim = k_pages.shape[1:]
    options = {"dtype": k_pages.dtype, "device": k_pages.device}
    keys = torch.empty((kv_heads, length, dim), **options)
    values = torch.empty((kv_heads, length, dim), **options)
    tile = 64
    gather_kernel[(triton.cdiv(length, tile), kv_heads)](
        k_pages, v_pages, table_row, keys, values, length,
        *k_pages.stride()[:3], *v_pages.stride()[:3],
        dim, triton.next_power_of_2(dim), page_size, tile, num_warps=4,
    )  # fmt: skip
    return keys, values
