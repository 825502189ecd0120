"""The library's tiled attention as a `Partial`: its output, and the log-sum-exp it knows anyway."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minicache.attention.partial import Partial

# The public call hides the log-sum-exp; the operator under it, which autograd uses, returns it.
_CPU_FLASH: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def fused_partial(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> Partial:
    """Attention without a score matrix. `q: (B, H, T, D)`, `k, v: (B, H, S, D)`.

    Only the last dimension must be dense. Output `(B, H, T, D)` in q's dtype, lse `(B, H, T)`
    float32, natural log. `causal` needs T == S; `mask` is added to the scores and broadcasts to
    `(B, H, T, S)`. Every query must see a key.
    """
    if q.device.type == "cpu":
        return Partial(*_CPU_FLASH(q, k, v, is_causal=causal, attn_mask=mask, scale=scale))
    return _plain_partial(q, k, v, scale, causal, mask)


def _plain_partial(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, mask: Tensor | None
) -> Partial:
    """The same with the score matrix, for devices that have kernels of their own instead."""
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale  # (B, H, T, S)
    if causal:
        hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    if mask is not None:
        scores = scores + mask
    output = scores.softmax(dim=-1) @ v.float()
    return Partial(output.to(q.dtype), scores.logsumexp(dim=-1))
