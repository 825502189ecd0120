# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalOperand=false, reportReturnType=false
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""The inner loop: online softmax over tiles of keys and values that lie in pages."""

import triton
import triton.language as tl


@triton.jit
def _saturating_tanh(x):
    """Tanh by one exponential; overflow of exp2 gives exactly ±1, never NaN."""
    return 1.0 - 2.0 / (tl.exp2(x * 2.8853900817779268) + 1.0)


@triton.jit
def _load_rows(head_pages, offsets, dims, present, D: tl.constexpr, MASKED: tl.constexpr):
    """Rows `offsets` of one KV head: (TILE, BLOCK_D). What is not `present` reads as 0, not as
    NaN.
    """
    pointers = head_pages + offsets[:, None] + dims[None, :]
    whole: tl.constexpr = dims.shape[0] == D
    if MASKED:
        if whole:
            return tl.load(pointers, mask=present[:, None], other=0.0)
        return tl.load(pointers, mask=present[:, None] & (dims[None, :] < D), other=0.0)
    if whole:
        return tl.load(pointers)
    return tl.load(pointers, mask=dims[None, :] < D, other=0.0)


@triton.jit
def _score(q, keys, scale_log2, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr):
    """Scores, and the factor that turns them into exponents of 2.

    The scale is left to the exponent, where it costs nothing; a cap comes after it and so does not.
    """
    scores = tl.dot(q, keys.T, input_precision=PRECISION)
    if SOFT_CAP > 0.0:
        limit = SOFT_CAP * 1.4426950408889634
        return _saturating_tanh(scores * scale_log2 / limit), limit
    return scores, scale_log2


@triton.jit
def _fold(
    scores, factor, values, acc, row_max, row_sum, MASKED: tl.constexpr, PRECISION: tl.constexpr
):
    """One step of the online softmax in base 2: rescale what was, add what is new. `factor` > 0."""
    new_max = tl.maximum(row_max, tl.max(scores, axis=1) * factor)
    # A row that has seen no key yet has maximum -inf, and -inf - -inf would be NaN.
    pivot = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
    weights = tl.exp2(scores * factor - pivot[:, None])
    rescale = tl.exp2(row_max - pivot)
    row_sum = row_sum * rescale + tl.sum(weights, axis=1)
    acc = tl.dot(
        weights.to(values.dtype), values, acc * rescale[:, None], input_precision=PRECISION
    )
    return acc, new_max, row_sum


@triton.jit
def attend_tiles(
    q, acc, row_max, row_sum, positions, start, stop, table_row,
    head_keys, head_values, page_stride, token_stride, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    STAGES: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Fold the keys `[start, stop)` into (acc, row_max, row_sum), token by token masked.

    Offsets within the cache are 64 bits wide: page * stride overflows 32 bits beyond 2^31 elements.
    """
    dims = tl.arange(0, BLOCK_D)
    for first in tl.range(start, stop, TILE, num_stages=STAGES):
        tokens = first + tl.arange(0, TILE)
        present = tokens < stop
        pages = tl.load(table_row + tokens // PAGE, mask=present, other=0).to(tl.int64)
        rows = pages * page_stride + (tokens % PAGE) * token_stride
        keys = _load_rows(head_keys, rows, dims, present, D, True)
        scores, factor = _score(q, keys, scale_log2, SOFT_CAP, PRECISION)
        visible = present[None, :]
        if CAUSAL:
            visible = visible & (tokens[None, :] <= positions[:, None])
            if WINDOW > 0:
                visible = visible & (tokens[None, :] > positions[:, None] - WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
        values = _load_rows(head_values, rows, dims, present, D, True)
        acc, row_max, row_sum = _fold(
            scores, factor, values, acc, row_max, row_sum, True, PRECISION
        )
    return acc, row_max, row_sum


@triton.jit
def _page_id(table_row, token, last, number: tl.constexpr, PAGE: tl.constexpr, IDS: tl.constexpr):
    if number < IDS:
        return tl.load(table_row + tl.minimum(token + number * PAGE, last) // PAGE)
    return 0


@triton.jit
def _page_ids(table_row, token, last, PAGE: tl.constexpr, IDS: tl.constexpr):
    """The pages of the tile that begins at `token`, as scalars; nothing is read past `last`."""
    return (
        _page_id(table_row, token, last, 0, PAGE, IDS),
        _page_id(table_row, token, last, 1, PAGE, IDS),
        _page_id(table_row, token, last, 2, PAGE, IDS),
        _page_id(table_row, token, last, 3, PAGE, IDS),
        _page_id(table_row, token, last, 4, PAGE, IDS),
        _page_id(table_row, token, last, 5, PAGE, IDS),
        _page_id(table_row, token, last, 6, PAGE, IDS),
        _page_id(table_row, token, last, 7, PAGE, IDS),
    )


@triton.jit
def _row_offsets(
    ids, token, page_stride, token_stride,
    PAGE: tl.constexpr, TILE: tl.constexpr, IDS: tl.constexpr,
):  # fmt: skip
    """Offsets of a tile's rows. Which page a row lies in is known when the kernel is compiled."""
    row = tl.arange(0, TILE)
    page = tl.zeros_like(row) + ids[0]
    for number in tl.static_range(1, IDS):
        page = tl.where(row // PAGE == number, ids[number], page)
    inner = row % PAGE if IDS > 1 else row + token % PAGE
    return page.to(tl.int64) * page_stride + inner * token_stride


@triton.jit
def attend_whole_tiles(
    q, acc, row_max, row_sum, start, stop, table_row,
    head_keys, head_values, page_stride, token_stride, scale_log2,
    D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr,
    STAGES: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Fold the whole tiles `[start, stop)`, every key of which every row sees.

    `start` begins a page, and a tile is up to 8 whole pages or a part of one. The page numbers are
    loaded one tile ahead. Half the instructions of `attend_tiles`: no masks, and addresses that are
    a page's address plus a constant.
    """
    ids_per_tile: tl.constexpr = max(TILE // PAGE, 1)
    dims = tl.arange(0, BLOCK_D)
    last = tl.maximum(stop - 1, 0)
    ids = _page_ids(table_row, start, last, PAGE, ids_per_tile)
    for first in tl.range(start, stop, TILE, num_stages=STAGES):
        rows = _row_offsets(ids, first, page_stride, token_stride, PAGE, TILE, ids_per_tile)
        ids = _page_ids(table_row, first + TILE, last, PAGE, ids_per_tile)
        keys = _load_rows(head_keys, rows, dims, dims, D, False)
        scores, factor = _score(q, keys, scale_log2, SOFT_CAP, PRECISION)
        values = _load_rows(head_values, rows, dims, dims, D, False)
        acc, row_max, row_sum = _fold(
            scores, factor, values, acc, row_max, row_sum, False, PRECISION
        )
    return acc, row_max, row_sum
