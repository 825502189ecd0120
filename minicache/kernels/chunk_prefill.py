"""Causal attention of ragged chunks over pages, cut along the keys when rows alone leave SMs idle.

A 64-token chunk at 128k context has two row blocks a KV head: 16 programs on a GPU of 132 SMs. So
the keys of each row block are cut too, by the rule that cuts a decode. A decode is a chunk of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from minicache.kernels.cutting import (
    CutRule,
    Cutting,
    Item,
    LaunchShape,
    Unit,
    ceil_div,
    cut,
    units_of,
)
from minicache.kernels.hardware import Gpu, gpu_of
from minicache.kernels.launch import (
    Masking,
    check_inputs,
    check_lengths,
    launch_attention,
)
from minicache.kernels.reference import AttentionResult
from minicache.kernels.work import WorkList, make_work
from minicache.protocols import AttentionBatch

MANY_ROWS = 4096
"""Query rows (tokens times heads of a group) of a sequence from which smaller programs win."""


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """What a chunk launch does."""

    shape: LaunchShape
    rule: CutRule
    slots: int
    """Programs that the GPU holds at once."""
    programs: int
    waves: float
    units: tuple[Unit, ...]
    items: tuple[Item, ...]
    flops: float
    """Of the visible (query, key) pairs: 4 * head_dim each, over all query heads."""


def chunk_shape(max_query: int, group: int, head_dim: int, element_bytes: int) -> LaunchShape:
    """The program shape, by the rows there are and by what fits into shared memory.

    128 rows and 128 keys, one program an SM, read keys least often; with very many rows two smaller
    programs an SM are faster, because one computes while the other waits (measured on an H200).
    """
    row_bytes = (1 << (head_dim - 1).bit_length()) * element_bytes
    rows = max_query * group
    if row_bytes > 512:
        return LaunchShape(32, 16, warps=4, stages=2)
    if row_bytes > 256:
        return LaunchShape(64, 32, warps=4, stages=2)
    if rows <= 32:
        return LaunchShape(32 if rows > 16 else 16, 64, warps=4, stages=2)
    if rows <= 64 or rows >= MANY_ROWS:
        return LaunchShape(64, 64, warps=4, stages=3)
    return LaunchShape(128, 128, warps=8, stages=3)


def chunk_rule(
    gpu: Gpu, shape: LaunchShape, num_units: int, num_kv_heads: int, split_size: int | None = None
) -> CutRule:
    """Resident programs by their registers: one of 8 warps, two of 4. Whole waves."""
    resident = 1 if shape.warps == 8 else 2
    wave = max(1, gpu.sms * resident // num_kv_heads)
    grid = wave * ceil_div(num_units, wave)
    cutting, fixed = Cutting.AUTO, 1
    if split_size is not None:
        cutting, fixed = Cutting.SIZE, max(1, ceil_div(split_size, shape.tile))
    return CutRule(cutting, shape.tile, wave, grid, grid, fixed)


def max_units(num_rows: int, batch: int, group: int, block_m: int) -> int:
    """Row blocks that `num_rows` query tokens of `batch` sequences can need at most."""
    return ceil_div(num_rows * group, block_m) + batch


def plan(
    gpu: Gpu,
    query_starts: Sequence[int],
    lengths: Sequence[int],
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    *,
    element_bytes: int = 2,
    window: int = 0,
    split_size: int | None = None,
) -> ChunkPlan:
    """What `chunk_prefill` will launch for a ragged batch on `gpu`. Pure."""
    group = num_heads // num_kv_heads
    counts = [b - a for a, b in zip(query_starts, query_starts[1:], strict=False)]
    shape = chunk_shape(max(counts), group, head_dim, element_bytes)
    bound = max_units(query_starts[-1], len(lengths), group, shape.block_m)
    rule = chunk_rule(gpu, shape, bound, num_kv_heads, split_size)
    units = units_of(query_starts, lengths, group, shape.block_m, window)
    items = cut(units, rule)
    slots = rule.wave * num_kv_heads
    programs = len(items) * num_kv_heads
    flops = sum(
        chunk_flops(t, n, num_heads, head_dim) for t, n in zip(counts, lengths, strict=True)
    )
    return ChunkPlan(
        shape, rule, slots, programs, programs / slots, tuple(units), tuple(items), flops
    )


def chunk_flops(tokens: int, length: int, num_heads: int, head_dim: int) -> float:
    """Operations of the visible pairs of a causal chunk: `tokens` rows at the end."""
    pairs = tokens * (length - tokens) + tokens * (tokens + 1) // 2
    return 4.0 * pairs * num_heads * head_dim


def chunk_work(
    q: Tensor,
    k_pages: Tensor,
    page_table: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    max_query: int,
    *,
    window: int = 0,
    split_size: int | None = None,
    gpu: Gpu | None = None,
) -> WorkList:
    """Cut a step of chunks on the device: once a step, for all layers. No host read."""
    gpu = gpu or gpu_of(q.device)
    tokens, heads, dim = q.shape
    kv_heads, page_size = k_pages.shape[1:3]
    group = heads // kv_heads
    shape = chunk_shape(max_query, group, dim, q.element_size())
    bound = max_units(tokens, lengths.shape[0], group, shape.block_m)
    return make_work(
        lengths, query_starts, tokens, page_table.shape[1], page_size, group, shape,
        chunk_rule(gpu, shape, bound, kv_heads, split_size), window=window,
        dependent=gpu.dependent_launch,
    )  # fmt: skip


def chunk_prefill(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    max_query: int,
    *,
    scale: float | None = None,
    soft_cap: float = 0.0,
    window: int = 0,
    split_size: int | None = None,
    work: WorkList | None = None,
    workspace: tuple[Tensor, Tensor] | None = None,
    gpu: Gpu | None = None,
) -> AttentionResult:
    """Causal attention of ragged chunks, each the last tokens of its sequence.

    `q: (T, H, D)`; pages `(P, K, N, D)`; `page_table: (B, C)`, `query_starts: (B + 1,)` and
    `lengths: (B,)` int32; `max_query`: an upper bound of a sequence's rows, known on the host.
    `work` is `chunk_work`'s answer for this step. Raises `ValueError` for shapes and types the
    kernels do not take. Runs under a CUDA graph.
    """
    check_inputs(q, k_pages, v_pages, page_table, lengths)
    gpu = gpu or gpu_of(q.device)
    if work is None:
        work = chunk_work(
            q, k_pages, page_table, query_starts, lengths, max_query, window=window,
            split_size=split_size, gpu=gpu,
        )  # fmt: skip
    return launch_attention(
        q, k_pages, v_pages, page_table, work, Masking(True, window, soft_cap),
        q.shape[-1] ** -0.5 if scale is None else scale,
        dependent=gpu.dependent_launch, workspace=workspace,
    )  # fmt: skip


class ChunkPrefill:
    """Attention of ragged chunks for the engine (`protocols.PagedAttention`), decodes included."""

    graph_safe = True

    def __init__(
        self, *, soft_cap: float = 0.0, window: int = 0, split_size: int | None = None
    ) -> None:
        """`split_size` (tokens) gives the same bits for a chunk alone and in any batch."""
        self._soft_cap = soft_cap
        self._window = window
        self._split_size = split_size
        self._step: tuple[AttentionBatch, int] | None = None
        self._work: WorkList | None = None

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (T, H, D)`, pages `(P, K, N, D)` → `(T, H, D)`. The first layer of a step cuts the
        work.
        """
        check_lengths(batch.host_lengths, batch.page_table.shape[1], k_pages.shape[2])
        # A step begins where its first layer comes round again, or with another batch.
        if self._step is None or self._step[0] is not batch or self._step[1] == k_pages.data_ptr():
            self._step = (batch, k_pages.data_ptr())
            self._work = chunk_work(
                q, k_pages, batch.page_table, batch.query_starts, batch.lengths, batch.max_query,
                window=self._window, split_size=self._split_size,
            )  # fmt: skip
        return chunk_prefill(
            q, k_pages, v_pages, batch.page_table, batch.query_starts, batch.lengths,
            batch.max_query, scale=scale, soft_cap=self._soft_cap, window=self._window,
            work=self._work,
        ).output  # fmt: skip
