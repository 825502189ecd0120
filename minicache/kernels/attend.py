# pyright: basic
# The bodies of jit functions are Triton's language, which a Python type checker cannot follow.
"""The split kernel: one program attends one work item for one KV head."""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, globaltimer, smid

from minicache.kernels.tiles import attend_tiles


@triton.jit
def _store(
    acc, row_max, row_sum, item, head, rows, count, pieces, token, query_head, live,
    out, lse, partial_out, partial_lse, num_heads, capacity,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Write rows that were not cut to `out` and `lse`, the others to this item's partial result."""
    dims = tl.arange(0, BLOCK_D)
    seen = row_sum > 0.0
    result = acc / tl.where(seen, row_sum, 1.0)[:, None]
    # Natural logarithm from here on: maxima are kept in base 2 only within the loop.
    log_sum = tl.where(
        seen, (row_max + tl.log2(tl.where(seen, row_sum, 1.0))) * 0.6931471805599453, float("-inf")
    )
    mask = live[:, None] & (dims[None, :] < D)
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
    q_token, q_head, k_page, k_head, k_token, v_page, v_head, v_token, table_row,
    num_heads, capacity, scale_log2,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
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

    rows = tl.arange(0, BLOCK_M)
    live = rows < count
    token = (row0 + rows) // GROUP
    query_head = head * GROUP + (row0 + rows) % GROUP
    positions = token + shift
    dims = tl.arange(0, BLOCK_D)
    q_rows = token.to(tl.int64) * q_token + query_head * q_head
    query = tl.load(
        q + q_rows[:, None] + dims[None, :], mask=live[:, None] & (dims[None, :] < D), other=0.0
    )

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    # Tiles that every row sees whole need no mask; a window cuts into each of them.
    whole = tl.minimum(row0 // GROUP + shift + 1, stop) if CAUSAL else stop
    whole = start + tl.maximum(whole - start, 0) // TILE * TILE
    if CAUSAL and WINDOW > 0:
        whole = start
    table = page_table + sequence.to(tl.int64) * table_row
    keys = k_pages + head.to(tl.int64) * k_head
    values = v_pages + head.to(tl.int64) * v_head
    acc, row_max, row_sum = attend_tiles(
        query, acc, row_max, row_sum, positions, start, whole, table,
        keys, values, k_page, k_token, v_page, v_token, scale_log2,
        D, BLOCK_D, PAGE, TILE, STAGES, False, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
    )  # fmt: skip
    acc, row_max, row_sum = attend_tiles(
        query, acc, row_max, row_sum, positions, whole, stop, table,
        keys, values, k_page, k_token, v_page, v_token, scale_log2,
        D, BLOCK_D, PAGE, TILE, STAGES, True, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
    )  # fmt: skip
    _store(
        acc, row_max, row_sum, item, head, rows, count, pieces, token, query_head, live,
        out, lse, partial_out, partial_lse, num_heads, capacity, D, BLOCK_D, BLOCK_M,
    )  # fmt: skip


@triton.jit(do_not_specialize=["table_row", "num_heads", "capacity"])
def attend_kernel(
    items, num_items, q, k_pages, v_pages, page_table, out, lse, partial_out, partial_lse, stamps,
    q_token, q_head, k_page, k_head, k_token, v_page, v_head, v_token, table_row,
    num_heads, capacity, scale_log2,
    GROUP: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, PRECISION: tl.constexpr,
    STRIDED: tl.constexpr, DEPENDENT: tl.constexpr, STAMPED: tl.constexpr,
):  # fmt: skip
    """Grid (KV heads, item slots). Slots past `num_items` are empty: the grid is fixed under a CUDA
    graph. `STRIDED` lets a slot take several items, when there may be more items than slots.

    `DEPENDENT`: the kernel may start while the one before it runs, so it waits before it reads; then
    it lets the next one start early too. `STAMPED` stores (SM, start ns, end ns) of each program.
    """
    head = tl.program_id(0)
    slot = tl.program_id(1)
    if STAMPED:
        begin = globaltimer()
    if DEPENDENT:
        gdc_wait()
        gdc_launch_dependents()
    total = tl.load(num_items)
    if STRIDED:
        for item in range(slot, total, tl.num_programs(1)):
            _attend_item(
                item, head, items, q, k_pages, v_pages, page_table, out, lse,
                partial_out, partial_lse, q_token, q_head, k_page, k_head, k_token,
                v_page, v_head, v_token, table_row, num_heads, capacity, scale_log2,
                GROUP, D, BLOCK_D, PAGE, BLOCK_M, TILE, STAGES, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
            )  # fmt: skip
    elif slot < total:
        # Causal row blocks see ever more keys: the longest goes first, so that none is left for last.
        _attend_item(
            total - 1 - slot if CAUSAL else slot, head, items, q, k_pages, v_pages, page_table, out, lse,
            partial_out, partial_lse, q_token, q_head, k_page, k_head, k_token,
            v_page, v_head, v_token, table_row, num_heads, capacity, scale_log2,
            GROUP, D, BLOCK_D, PAGE, BLOCK_M, TILE, STAGES, CAUSAL, WINDOW, SOFT_CAP, PRECISION,
        )  # fmt: skip
    if STAMPED:
        mine = stamps + (slot * tl.num_programs(0) + head) * 3
        tl.store(mine, smid().to(tl.int64))
        tl.store(mine + 1, begin)
        tl.store(mine + 2, globaltimer())
