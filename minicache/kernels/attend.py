# pyright: basic, reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false
# pyright: reportIndexIssue=false, reportGeneralTypeIssues=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportOptionalOperand=false, reportReturnType=false
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""The split kernel: one program attends one work item for one KV head."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, globaltimer, smid

from minicache.kernels.tiles import attend_tiles, attend_whole_tiles


@triton.jit
def _store(
    acc, row_max, row_sum, item, head, rows, live, token, query_head, pieces,
    out, lse, partial_out, partial_lse, num_heads, capacity,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """A unit that was not cut goes to `out` and `lse`, a piece to the item's partial result."""
    dims = tl.arange(0, BLOCK_D)
    mask = live[:, None] & (dims[None, :] < D)
    seen = row_sum > 0.0
    row_sum = tl.where(seen, row_sum, 1.0)
    result = acc / row_sum[:, None]
    # Natural logarithm from here on: maxima are kept in base 2 only within the loop.
    log_sum = tl.where(seen, (row_max + tl.log2(row_sum)) * 0.6931471805599453, float("-inf"))
    if pieces == 1:
        row = token.to(tl.int64) * num_heads + query_head
        tl.store(out + row[:, None] * D + dims[None, :], result.to(out.dtype.element_ty), mask=mask)
        tl.store(lse + row, log_sum, mask=live)
    else:
        slot = (head * capacity + item).to(tl.int64) * BLOCK_M + rows
        tl.store(partial_out + slot[:, None] * D + dims[None, :], result, mask=mask)
        tl.store(partial_lse + slot, log_sum, mask=live)


@triton.jit
def _attend_item(
    item, head, items, q, k_pages, v_pages, page_table, out, lse, partial_out, partial_lse,
    q_token, q_head, page_stride, head_stride, token_stride, table_row,
    num_heads, capacity, scale_log2,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Attend `items[item]` for KV head `head`: rows pack (query token, query head of the group)."""
    fields = items + item * 8
    sequence = tl.load(fields)
    row0 = tl.load(fields + 1)
    count = tl.load(fields + 2)
    start = tl.load(fields + 3)
    stop = tl.load(fields + 4)
    shift = tl.load(fields + 5)
    pieces = tl.load(fields + 6)
    if DEPENDENT:
        # The items are older than the kernel in front; q, keys and values may be its work.
        gdc_wait()

    rows = tl.arange(0, BLOCK_M)
    live = rows < count
    token = (row0 + rows) // GROUP
    query_head = head * GROUP + (row0 + rows) % GROUP
    dims = tl.arange(0, BLOCK_D)
    q_rows = token.to(tl.int64) * q_token + query_head * q_head
    query = tl.load(
        q + q_rows[:, None] + dims[None, :], mask=live[:, None] & (dims[None, :] < D), other=0.0
    )
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    table = page_table + sequence.to(tl.int64) * table_row
    keys = k_pages + head.to(tl.int64) * head_stride
    values = v_pages + head.to(tl.int64) * head_stride

    # A window begins within a tile; pages of fewer than 16 tokens would be too many a tile.
    fast: tl.constexpr = WINDOW == 0 and TILE <= 8 * PAGE and (TILE % PAGE == 0 or PAGE % TILE == 0)
    whole = start
    if fast:
        seen_by_all = tl.minimum(row0 // GROUP + shift + 1, stop) if CAUSAL else stop
        whole = start + tl.maximum(seen_by_all - start, 0) // TILE * TILE
        acc, row_max, row_sum = attend_whole_tiles(
            query, acc, row_max, row_sum, start, whole, table,
            keys, values, page_stride, token_stride, scale_log2,
            D, BLOCK_D, PAGE, TILE, STAGES, SOFT_CAP, PRECISION,
        )  # fmt: skip
    acc, row_max, row_sum = attend_tiles(
        query, acc, row_max, row_sum, token + shift, whole, stop, table,
        keys, values, page_stride, token_stride, scale_log2,
        D, BLOCK_D, PAGE, TILE, 1 if fast else STAGES, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
    )  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
    _store(
        acc, row_max, row_sum, item, head, rows, live, token, query_head, pieces,
        out, lse, partial_out, partial_lse, num_heads, capacity, D, BLOCK_D, BLOCK_M,
    )  # fmt: skip


@triton.jit(do_not_specialize=["table_row", "num_heads", "capacity"])
def attend_kernel(
    items, num_items, q, k_pages, v_pages, page_table, out, lse, partial_out, partial_lse, stamps,
    q_token, q_head, page_stride, head_stride, token_stride, table_row,
    num_heads, capacity, scale_log2,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
    STRIDED: tl.constexpr, DEPENDENT: tl.constexpr, STAMPED: tl.constexpr,
):  # fmt: skip
    """Grid (slots * KV heads): share s is item s // KV heads, KV head s % KV heads. Shares past the
    last are empty: the grid is fixed under a CUDA graph. `STRIDED`: a program takes every so
    many-th share, because there may be more shares than programs.

    `DEPENDENT`: the kernel may be launched while the one in front of it still runs. `STAMPED`
    stores (SM, start ns, end ns) of each program.
    """
    program = tl.program_id(0)
    if STAMPED:
        begin = globaltimer()
    kv_heads = num_heads // GROUP
    total = tl.load(num_items)
    shares = total * kv_heads
    if STRIDED:
        for share in range(program, shares, tl.num_programs(0)):
            _attend_item(
                share // kv_heads, share % kv_heads, items, q, k_pages, v_pages, page_table,
                out, lse, partial_out, partial_lse,
                q_token, q_head, page_stride, head_stride, token_stride, table_row,
                num_heads, capacity, scale_log2,
                GROUP, D, BLOCK_D, PAGE, BLOCK_M, TILE, STAGES, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
                DEPENDENT,
            )  # fmt: skip
    elif program < shares:
        item = program // kv_heads
        # Causal row blocks see ever more keys: the longest first, so that none is left for last.
        item = total - 1 - item if CAUSAL else item
        _attend_item(
            item, program % kv_heads, items, q, k_pages, v_pages, page_table, out, lse,
            partial_out, partial_lse, q_token, q_head, page_stride, head_stride, token_stride,
            table_row, num_heads, capacity, scale_log2,
            GROUP, D, BLOCK_D, PAGE, BLOCK_M, TILE, STAGES, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
            DEPENDENT,
        )  # fmt: skip
    if DEPENDENT:
        gdc_wait()  # a program without work, too, may not end before the kernel in front has
    if STAMPED:
        tl.store(stamps + program * 3, smid().to(tl.int64))
        tl.store(stamps + program * 3 + 1, begin)
        tl.store(stamps + program * 3 + 2, globaltimer())
