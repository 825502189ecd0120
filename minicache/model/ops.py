"""The small operations between the matrix products, in torch. A GPU brings fused kernels."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch.nn.functional as F
from torch import Tensor

from minicache.model.inputs import StepInputs
from minicache.model.norm import RmsNorm
from minicache.model.rope import Rope, rotate
from minicache.model.rows import Rows


class HeadShape(NamedTuple):
    """How the columns of a qkv product split into heads."""

    num_heads: int
    num_kv_heads: int


class Ops(Protocol):
    """What runs between the products of a layer: much memory traffic and little arithmetic."""

    def add_norm(self, x: Tensor, delta: Tensor | None, norm: RmsNorm) -> tuple[Tensor, Tensor]:
        """The residual stream `x + delta`, `(T, hidden)`, and its norm."""
        ...

    def rotary_write(
        self,
        qkv: Tensor,
        shape: HeadShape,
        head_norm: RmsNorm | None,
        angles: Rope,
        step: StepInputs,
        k_pages: Tensor,
        v_pages: Tensor,
    ) -> Tensor:
        """Norm heads if told to, turn q and k by each row's angles, store k and v.

        `qkv: (T, (H + 2K) * D)` → q `(T, H, D)`.
        """
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) · up: `(T, 2 · inner)` → `(T, inner)`."""
        ...


class TorchOps:
    """Implements `Ops` with library calls."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def add_norm(self, x: Tensor, delta: Tensor | None, norm: RmsNorm) -> tuple[Tensor, Tensor]:
        """See `Ops`."""
        x = x if delta is None else x + delta
        return x, norm(x)

    def rotary_write(
        self,
        qkv: Tensor,
        shape: HeadShape,
        head_norm: RmsNorm | None,
        angles: Rope,
        step: StepInputs,
        k_pages: Tensor,
        v_pages: Tensor,
    ) -> Tensor:
        """See `Ops`."""
        heads, kv_heads = shape

        def turn(qkv: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
            each = qkv.view(len(qkv), heads + 2 * kv_heads, -1)  # (T, H + 2K, D)
            both, v = each[:, : heads + kv_heads], each[:, heads + kv_heads :]
            turned = rotate(both if head_norm is None else head_norm(both), cos, sin)
            return turned[:, :heads], turned[:, heads:], v

        q, k, v = self._rows(turn, qkv, *angles)
        k_pages[step.pages, :, step.offsets] = k  # (T, K, D)
        v_pages[step.pages, :, step.offsets] = v
        return q

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See `Ops`. Shazeer 2020, "GLU variants improve Transformer"."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up
