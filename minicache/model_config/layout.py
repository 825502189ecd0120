"""Which tensors a model has, and their shapes, from its config alone."""

from __future__ import annotations

from minicache.model_config.config import ModelConfig

Shape = tuple[int, ...]


def tensor_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Every tensor of the model under its Hugging Face name; a weight is `(outputs, inputs)`.

    A tied model has no `lm_head.weight`: the embedding takes its place.
    """
    shapes: dict[str, Shape] = {
        "model.embed_tokens.weight": (config.vocab_size, config.hidden_size)
    }
    for layer in range(config.num_layers):
        for name, shape in _layer_shapes(config).items():
            shapes[f"model.layers.{layer}.{name}"] = shape
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, Shape]:
    """One decoder layer, in the order in which a token meets its parts."""
    norm = (config.hidden_size,)
    return {
        "input_layernorm.weight": norm,
        **_attention_shapes(config),
        "post_attention_layernorm.weight": norm,
        **_mlp_shapes(config),
    }


def _attention_shapes(config: ModelConfig) -> dict[str, Shape]:
    hidden, head = config.hidden_size, config.head_dim
    queries, keys = config.num_heads * head, config.num_kv_heads * head
    bias, output_bias = config.attention_bias, config.output_bias
    shapes = {
        **_linear("self_attn.q_proj", queries, hidden, bias),
        **_linear("self_attn.k_proj", keys, hidden, bias),
        **_linear("self_attn.v_proj", keys, hidden, bias),
        **_linear("self_attn.o_proj", hidden, queries, output_bias),
    }
    if config.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (head,), "self_attn.k_norm.weight": (head,)}
    return shapes


def _mlp_shapes(config: ModelConfig) -> dict[str, Shape]:
    hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
    return {
        **_linear("mlp.gate_proj", inner, hidden, bias),
        **_linear("mlp.up_proj", inner, hidden, bias),
        **_linear("mlp.down_proj", hidden, inner, bias),
    }


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {f"{name}.weight": (outputs, inputs)}
    return shapes | ({f"{name}.bias": (outputs,)} if bias else {})
