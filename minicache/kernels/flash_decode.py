"""FlashDecoding: one query token a sequence, its keys cut over the whole GPU.

`plan` is pure and says what a launch will do; `flash_decode` does it. See Dao et al.,
"Flash-Decoding for long-context inference" (2023), and Hong et al., "FlashDecoding++" (2023).
"""

from __future__ import annotations

import torch
from torch import Tensor

from minicache.kernels.decode_plan import DecodePlan, decode_launch, plan
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

__all__ = [
    "DecodePlan",
    "FlashDecode",
    "decode_launch",
    "decode_work",
    "flash_decode",
    "flash_decode_reference",
    "plan",
]


def decode_work(
    q: Tensor,
    k_pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    *,
    window: int = 0,
    split_size: int | None = None,
    num_splits: int | None = None,
    gpu: Gpu | None = None,
) -> WorkList:
    """Cut a decode step on the device: once a step, for all layers. No host read."""
    gpu = gpu or gpu_of(q.device)
    heads, dim = q.shape[1:]
    kv_heads, page_size = k_pages.shape[1:3]
    shape, rule = decode_launch(
        gpu, lengths.shape[0], heads, kv_heads, dim, q.element_size(),
        split_size=split_size, num_splits=num_splits,
    )  # fmt: skip
    return make_work(
        lengths, None, q.shape[0], page_table.shape[1], page_size, heads // kv_heads, shape, rule,
        window=window, dependent=gpu.dependent_launch,
    )  # fmt: skip


def flash_decode(
    q: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    page_table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    soft_cap: float = 0.0,
    window: int = 0,
    split_size: int | None = None,
    num_splits: int | None = None,
    work: WorkList | None = None,
    workspace: tuple[Tensor, Tensor] | None = None,
    stamps: Tensor | None = None,
    gpu: Gpu | None = None,
) -> AttentionResult:
    """Attention of one query token a sequence over its pages.

    `q: (B, H, D)`; pages `(P, K, N, D)`; `page_table: (B, C)` and `lengths: (B,)` int32. A
    sequence of length 0 gives output 0 and lse -inf. `work` is `decode_work`'s answer for this
    step, to share it between layers. `window`: the last so many keys are visible; `soft_cap`:
    before the mask. Raises `ValueError` for shapes and types the kernels do not take. Runs under a
    CUDA graph.
    """
    check_inputs(q, k_pages, v_pages, page_table, lengths)
    gpu = gpu or gpu_of(q.device)
    if work is None:
        work = decode_work(
            q, k_pages, page_table, lengths, window=window, split_size=split_size,
            num_splits=num_splits, gpu=gpu,
        )  # fmt: skip
    return launch_attention(
        q, k_pages, v_pages, page_table, work, Masking(False, window, soft_cap),
        q.shape[-1] ** -0.5 if scale is None else scale,
        dependent=gpu.dependent_launch, workspace=workspace, stamps=stamps,
    )  # fmt: skip


class FlashDecode:
    """Decode attention for the engine (`protocols.PagedAttention`): one query row a sequence."""

    graph_safe = True

    def __init__(
        self, *, soft_cap: float = 0.0, window: int = 0, split_size: int | None = None
    ) -> None:
        """`split_size` (tokens) gives the same bits for a sequence alone and in any batch."""
        self._soft_cap = soft_cap
        self._window = window
        self._split_size = split_size
        self._step: tuple[AttentionBatch, int] | None = None
        self._work: WorkList | None = None

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, batch: AttentionBatch, scale: float
    ) -> Tensor:
        """`q: (B, H, D)`, pages `(P, K, N, D)` → `(B, H, D)`. The first layer of a step cuts the
        work.
        """
        check_lengths(batch.host_lengths, batch.page_table.shape[1], k_pages.shape[2])
        if batch.max_query != 1 or q.shape[0] != batch.lengths.shape[0]:
            raise ValueError(
                f"{q.shape[0]} query rows came for {batch.lengths.shape[0]} sequences, but "
                "a decode has one row a sequence; use ChunkPrefill for the others."
            )
        # A step begins where its first layer comes round again, or with another batch.
        first_layer = self._step is None or self._step[0] is not batch
        if first_layer or (self._step and self._step[1] == k_pages.data_ptr()):
            self._step = (batch, k_pages.data_ptr())
            self._work = decode_work(
                q, k_pages, batch.page_table, batch.lengths,
                window=self._window, split_size=self._split_size,
            )  # fmt: skip
        return flash_decode(
            q, k_pages, v_pages, batch.page_table, batch.lengths, scale=scale,
            soft_cap=self._soft_cap, window=self._window, work=self._work,
        ).output  # fmt: skip


def flash_decode_reference(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, page_table: Tensor, lengths: Tensor
) -> AttentionResult:
    """The same in plain torch, in float64 and on host lengths: see `reference`."""
    from minicache.kernels.reference import paged_attention_reference

    host = [int(n) for n in lengths.tolist()]
    return paged_attention_reference(
        q, k_pages, v_pages, page_table, range(len(host) + 1), host, dtype=torch.float64
    )
