# pyright: basic
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""The inner loop: online softmax over tiles of keys and values that lie in pages."""

import triton
import triton.language as tl


@triton.jit
def _saturating_tanh(x):
    """Tanh by one exponential; overflow of exp2 gives exactly ±1, never NaN."""
    return 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)


@triton.jit
def _load_rows(pages_head, offsets, dims, present, D: tl.constexpr, MASKED: tl.constexpr):
    """Rows `offsets` of one KV head: (TILE, BLOCK_D). What is not `present` reads as 0, not as NaN."""
    pointers = pages_head + offsets[:, None] + dims[None, :]
    whole: tl.constexpr = dims.shape[0] == D
    if MASKED:
        if whole:
            return tl.load(pointers, mask=present[:, None], other=0.0)
        return tl.load(pointers, mask=present[:, None] & (dims[None, :] < D), other=0.0)
    if whole:
        return tl.load(pointers)
    return tl.load(pointers, mask=dims[None, :] < D, other=0.0)


@triton.jit
def _fold(scores, values, acc, row_max, row_sum, MASKED: tl.constexpr, PRECISION: tl.constexpr):
    """One step of the online softmax in base 2: rescale what was, add what is new."""
    new_max = tl.maximum(row_max, tl.max(scores, axis=1))
    # A row that has seen no key yet has maximum -inf, and -inf - -inf would be NaN.
    pivot = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    weights = tl.exp2(scores - pivot[:, None])
    rescale = tl.exp2(row_max - pivot)
    row_sum = row_sum * rescale + tl.sum(weights, axis=1)
    acc = tl.dot(
        weights.to(values.dtype), values, acc * rescale[:, None], input_precision=PRECISION
    )
    return acc, new_max, row_sum


@triton.jit
def attend_tiles(
    q, acc, row_max, row_sum, positions, start, stop, table_row,
    k_head, v_head, k_page, k_token, v_page, v_token, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    STAGES: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Fold the keys `[start, stop)` into (acc, row_max, row_sum); scores are in base 2.

    `MASKED` says that a tile may reach past `stop` or past a row's position. Offsets within the
    cache are 64 bits wide: page * stride overflows 32 bits beyond 2^31 elements.
    """
    dims = tl.arange(0, BLOCK_D)
    for first in tl.range(start, stop, TILE, num_stages=STAGES):
        tokens = first + tl.arange(0, TILE)
        present = tokens < stop
        if MASKED:
            pages = tl.load(table_row + tokens // PAGE, mask=present, other=0).to(tl.int64)
        else:
            pages = tl.load(table_row + tokens // PAGE).to(tl.int64)
        k_rows = pages * k_page + (tokens % PAGE) * k_token
        keys = _load_rows(k_head, k_rows, dims, present, D, MASKED)
        scores = tl.dot(q, keys.T, input_precision=PRECISION) * scale_log2
        if SOFT_CAP > 0.0:
            # Before the mask: a capped -inf would be a finite score.
            limit = SOFT_CAP * 1.4426950408889634
            scores = limit * _saturating_tanh(scores / limit)
        if MASKED:
            visible = present[None, :]
            if CAUSAL:
                visible = visible & (tokens[None, :] <= positions[:, None])
                if WINDOW > 0:
                    visible = visible & (tokens[None, :] > positions[:, None] - WINDOW)
            scores = tl.where(visible, scores, float("-inf"))
        v_rows = pages * v_page + (tokens % PAGE) * v_token
        values = _load_rows(v_head, v_rows, dims, present, D, MASKED)
        acc, row_max, row_sum = _fold(scores, values, acc, row_max, row_sum, MASKED, PRECISION)
    return acc, row_max, row_sum
