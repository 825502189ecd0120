# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalOperand=false, reportReturnType=false
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""The combine kernel: merge the pieces of a unit by their log-sum-exp weights."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def _merge_pieces(
    partial_out, partial_lse, first, last, head, rows, live, dims, capacity,
    D: tl.constexpr, BLOCK_M: tl.constexpr, PIECES: tl.constexpr,
):  # fmt: skip
    """Output and natural-log lse of some rows, from their partial results `[first, last)`.

    `PIECES` of them are loaded at once, always in the same order: a sequence cut the same way gives
    the same bits in any batch.
    """
    acc = tl.zeros([rows.shape[0], dims.shape[0]], tl.float32)
    pivot = tl.full([rows.shape[0]], float("-inf"), tl.float32)
    total = tl.zeros([rows.shape[0]], tl.float32)
    for block in range(first, last, PIECES):
        piece = block + tl.arange(0, PIECES)
        mask = (piece < last)[:, None] & live[None, :]
        slots = (head * capacity + piece).to(tl.int64)[:, None] * BLOCK_M + rows[None, :]
        logs = tl.load(partial_lse + slots, mask=mask, other=float("-inf"))
        values = tl.load(
            partial_out + slots[:, :, None] * D + dims[None, None, :],
            mask=mask[:, :, None] & (dims < D)[None, None, :], other=0.0,
        )  # (PIECES, rows, dims)  # fmt: skip
        new_pivot = tl.maximum(pivot, tl.max(logs, axis=0))
        # A piece that saw no key weighs exp(-inf) = 0; if none saw any, the pivot must not be -inf.
        safe = tl.where(new_pivot == float("-inf"), 0.0, new_pivot)
        weights = tl.exp2((logs - safe[None, :]) * 1.4426950408889634)
        rescale = tl.exp2((pivot - safe) * 1.4426950408889634)
        acc = acc * rescale[:, None] + tl.sum(weights[:, :, None] * values, axis=0)
        total = total * rescale + tl.sum(weights, axis=0)
        pivot = new_pivot
    seen = total > 0.0
    total = tl.where(seen, total, 1.0)
    lse = tl.where(seen, pivot + tl.log2(total) * 0.6931471805599453, float("-inf"))
    return acc / total[:, None], lse


@triton.jit(do_not_specialize=["num_heads", "capacity"])
def combine_kernel(
    items, first_item, partial_out, partial_lse, out, lse, num_heads, capacity,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr, PIECES: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (row blocks of a unit, KV heads, units). A unit that was not cut is already in `out`."""
    head = tl.program_id(1)
    unit = tl.program_id(2)
    first = tl.load(first_item + unit)
    last = tl.load(first_item + unit + 1)
    row0 = tl.load(items + first * 8 + 1)
    count = tl.load(items + first * 8 + 2)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    if last - first < 2:
        return
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = rows < count
    dims = tl.arange(0, BLOCK_D)
    result, log_sum = _merge_pieces(
        partial_out, partial_lse, first, last, head, rows, live, dims, capacity, D, BLOCK_M, PIECES
    )
    packed = row0 + rows
    target = (packed // GROUP).to(tl.int64) * num_heads + head * GROUP + packed % GROUP
    mask = live[:, None] & (dims < D)[None, :]
    tl.store(out + target[:, None] * D + dims[None, :], result.to(out.dtype.element_ty), mask=mask)
    tl.store(lse + target, log_sum, mask=live)
