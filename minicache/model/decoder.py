"""A decoder of the Llama family (SmolLM, Qwen2, Qwen3 too): one ragged pass over paged KV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from minicache.kv_cache import PagedKVCache
from minicache.linear import Linear, packing_helps
from minicache.model.inputs import StepInputs
from minicache.model.layer import Layer, LayerLoader
from minicache.model.ops import HeadShape, Ops, TorchOps
from minicache.model.rope import make_rope
from minicache.model.rows import FixedRows, Rows, WholeRows
from minicache.model_config import ModelConfig
from minicache.protocols import PagedAttention


@dataclass(frozen=True, slots=True)
class Attentions:
    """Who attends: one part for rows that decode, one for chunks. They may be the same."""

    decode: PagedAttention
    chunk: PagedAttention

    def __call__(
        self, q: Tensor, k_pages: Tensor, v_pages: Tensor, step: StepInputs, scale: float
    ) -> Tensor:
        """`q: (T, H, D)` → `(T, H, D)`: each half of the rows to its part."""
        cut = step.num_decode_rows
        parts: list[Tensor] = []
        if step.decodes is not None:
            parts.append(self.decode(q[:cut], k_pages, v_pages, step.decodes, scale))
        if step.chunks is not None:
            parts.append(self.chunk(q[cut:], k_pages, v_pages, step.chunks, scale))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class Decoder:
    """The weights, and the forward pass. It knows no requests, only rows, positions and slots.

    With `batch_invariant`, a row's results are the same bits whatever else is in the step, provided
    that the attention parts keep the same promise (`InvariantAttention`).
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        *,
        dtype: torch.dtype,
        device: str | torch.device = "cpu",
        max_positions: int | None = None,
        batch_invariant: bool = False,
        ops: Ops | None = None,
    ) -> None:
        """`tensors` in Hugging Face names; those of the right dtype are used where they lie.

        Positions lie in [0, max_positions), by default all that the model was made for.
        """
        self.config = config
        self.dtype = dtype
        self.device = torch.device(device)
        self.batch_invariant = batch_invariant
        self._rows: Rows = FixedRows() if batch_invariant else WholeRows()
        self._ops: Ops = ops or TorchOps(self._rows)
        loader = LayerLoader(config, tensors, dtype, self.device)
        self._layers = [loader.layer(number) for number in range(config.num_layers)]
        self._norm = loader.norm("model.norm.weight")
        self._embedding, self._head = _ends(loader)
        positions = max_positions or config.max_position_embeddings
        self._rope = make_rope(config, positions, dtype=dtype, device=self.device)
        self._heads = HeadShape(config.num_heads, config.num_kv_heads)

    def __call__(self, step: StepInputs, cache: PagedKVCache, attend: Attentions) -> Tensor:
        """Compute all rows, store keys and values, and return logits `(R, V)` of `step.sampled`."""
        x = F.embedding(step.tokens, self._embedding).to(self.dtype)  # (T, hidden)
        delta: Tensor | None = None
        angles = self._rope.at(step.positions)
        scale = self.config.head_dim**-0.5
        for number, layer in enumerate(self._layers):
            pages = cache.k_pages[number], cache.v_pages[number]
            x, qkv = self._rows(partial(self._project, layer), x, delta)
            q = self._ops.rotary_write(qkv, self._heads, layer.head_norm, angles, step, *pages)
            mixed = attend(q, *pages, step, scale).flatten(1)  # (T, H * D)
            if layer is self._layers[-1]:  # nobody will read the other rows
                x, mixed = x[step.sampled], mixed[step.sampled]
            x, delta = self._rows(partial(self._transform, layer), x, mixed)
        return self._rows(self._answer, x, delta)[0]

    def _project(self, layer: Layer, x: Tensor, delta: Tensor | None) -> tuple[Tensor, ...]:
        """Residual stream → residual stream, and queries, keys and values side by side."""
        x, normed = self._ops.add_norm(x, delta, layer.attention_norm)
        return x, layer.qkv(normed)

    def _transform(self, layer: Layer, x: Tensor, mixed: Tensor) -> tuple[Tensor, ...]:
        """Attention's result `(T, H · D)` → residual stream, and what the MLP adds to it."""
        x, normed = self._ops.add_norm(x, layer.output(mixed), layer.mlp_norm)
        return x, layer.down(self._ops.silu_mul(layer.gate_up(normed)))

    def _answer(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, ...]:
        """The last hidden states of the sampled rows → their logits `(R, V)`."""
        return (self._head(self._ops.add_norm(x, delta, self._norm)[1]),)


def _ends(loader: LayerLoader) -> tuple[Tensor, Linear]:
    """The embedding table, and the product that makes logits: one tensor where the model ties them.

    Where the head is packed, the table stays as it was stored: a step reads a few rows of it.
    """
    table = loader.tensors["model.embed_tokens.weight"]
    if not packing_helps(loader.device, loader.dtype):
        table = table.to(loader.device, loader.dtype)
    tied = loader.config.tie_word_embeddings
    return table, loader.product(table) if tied else loader.linear("lm_head")
