"""The weights of one decoder layer, laid out for few large products instead of many small ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minicache.linear import DenseLinear, Linear, PackedLinear, packing_helps
from minicache.model.norm import RmsNorm
from minicache.model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Layer:
    """Attention, then the MLP; each behind an RMS norm and beside the residual stream."""

    attention_norm: RmsNorm
    qkv: Linear
    """hidden → (H + 2K) · D: queries, keys and values in one product."""
    head_norm: RmsNorm | None
    """Norm of each query and key head, `(T, H + K, D)`, where the model has one."""
    output: Linear
    """H · D → hidden."""
    mlp_norm: RmsNorm
    gate_up: Linear
    """hidden → 2 · inner."""
    down: Linear
    """inner → hidden."""


class LayerLoader:
    """Turns named tensors into layers, one at a time, so that at most one is held twice."""

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.config = config
        self.tensors = tensors
        self.dtype = dtype
        self.device = device

    def layer(self, number: int) -> Layer:
        """The layer `number`, from tensors in Hugging Face names."""
        prefix = f"model.layers.{number}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        return Layer(
            attention_norm=self.norm(f"{prefix}.input_layernorm.weight"),
            qkv=self.linear(*(f"{attention}.{name}_proj" for name in "qkv")),
            head_norm=self._head_norm(attention) if self.config.qk_norm else None,
            output=self.linear(f"{attention}.o_proj"),
            mlp_norm=self.norm(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self.linear(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            down=self.linear(f"{mlp}.down_proj"),
        )

    def tensor(self, *names: str) -> Tensor:
        """The named tensors, one below the other. A single one of the right dtype is not copied."""
        parts = [self.tensors[name].to(self.device, self.dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def norm(self, name: str) -> RmsNorm:
        """The norm with the named weight, `(hidden,)`."""
        return RmsNorm(self.tensor(name), self.config.rms_norm_eps)

    def linear(self, *names: str) -> Linear:
        """One product in place of several over the same input, with biases where there are any."""
        weight = self.tensor(*(f"{name}.weight" for name in names))
        biased = f"{names[0]}.bias" in self.tensors
        bias = self.tensor(*(f"{name}.bias" for name in names)) if biased else None
        return self.product(weight, bias)

    def product(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        """X Wᵀ + b in the model's dtype, in whichever form is fastest here."""
        weight = weight.to(self.device, self.dtype)
        if packing_helps(self.device, self.dtype):
            return PackedLinear(weight, bias)
        return DenseLinear(weight, bias)

    def _head_norm(self, attention: str) -> RmsNorm:
        """Queries and keys in one: weight `(H + K, D)`."""
        q, k = self.tensor(f"{attention}.q_norm.weight"), self.tensor(f"{attention}.k_norm.weight")
        heads = (self.config.num_heads, -1), (self.config.num_kv_heads, -1)
        weight = torch.cat([q.expand(heads[0]), k.expand(heads[1])])
        return RmsNorm(weight, self.config.rms_norm_eps)
