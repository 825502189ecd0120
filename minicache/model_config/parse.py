"""config.json → ModelConfig, refusing by name whatever the decoder would compute wrongly.

Older files write `rope_theta` and `rope_scaling`; transformers 5 writes `rope_parameters`. Both are
read. Defaults are those of transformers' config classes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minicache.model_config.config import Architecture, ModelConfig, ModelError, RopeScaling
from minicache.model_config.fields import Fields
from minicache.model_config.unsupported import CAUSAL_LM, SUPPORTED, refuse_unsupported

_DEFAULT_ROPE_THETA = 10_000.0


def read_config(folder: Path, name: str | None = None) -> ModelConfig:
    """The config of a model folder; end-of-sequence tokens come from generation_config.json first.

    Raises `ModelError` when config.json is absent, malformed, or asks for what is not supported.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is not a model folder; name the folder that holds"
            " config.json, tokenizer.json and the .safetensors files."
        )
    generation = folder / "generation_config.json"
    return parse_config(
        read_json(folder / "config.json"),
        name or folder.resolve().name,
        read_json(generation) if generation.is_file() else {},
    )


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object from a file. Raises `ModelError` when it is not one."""
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(f"{path} is not readable JSON ({error}); fetch the file again.") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object; fetch the file again.")
    return value


def parse_config(
    raw: Mapping[str, Any], name: str, generation: Mapping[str, Any] | None = None
) -> ModelConfig:
    """A config.json (and generation_config.json) already read. Raises `ModelError`."""
    fields = Fields(raw, f"config.json of {name}")
    architecture = _architecture(fields)
    refuse_unsupported(fields)
    config = _config(fields, architecture, name)
    _check_heads(config)
    generation_fields = Fields(generation or {}, f"generation_config.json of {name}")
    eos = generation_fields.token_ids("eos_token_id") or fields.token_ids("eos_token_id")
    return config.with_eos(eos)


def _config(fields: Fields, architecture: Architecture, name: str) -> ModelConfig:
    hidden, heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    qwen2, qwen3 = architecture is Architecture.QWEN2, architecture is Architecture.QWEN3
    bias = fields.flag("attention_bias")
    return ModelConfig(
        name=name,
        architecture=architecture,
        num_layers=fields.integer("num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=heads,
        num_kv_heads=fields.integer("num_key_value_heads", heads),
        head_dim=fields.integer("head_dim", 128 if qwen3 else max(hidden // heads, 1)),
        vocab_size=fields.integer("vocab_size"),
        max_position_embeddings=fields.integer("max_position_embeddings"),
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(fields),
        rope_scaling=_rope_scaling(fields),
        tie_word_embeddings=fields.flag("tie_word_embeddings"),
        attention_bias=qwen2 or bias,
        output_bias=bias and not qwen2,
        mlp_bias=architecture is Architecture.LLAMA and fields.flag("mlp_bias"),
        qk_norm=qwen3,
    )


def _architecture(fields: Fields) -> Architecture:
    model_type = fields.raw.get("model_type")
    known = {architecture.value: architecture for architecture in Architecture}
    if model_type not in known:
        fields.refuse("model_type", SUPPORTED)
    architecture = known[model_type]
    if fields.raw.get("architectures") not in (None, [], [CAUSAL_LM[architecture]]):
        fields.refuse("architectures", f"{SUPPORTED}, as {CAUSAL_LM[architecture]}")
    return architecture


def _rope_theta(fields: Fields) -> float:
    older = fields.number("rope_theta", _DEFAULT_ROPE_THETA)
    return Fields(fields.section("rope_parameters"), fields.where).number("rope_theta", older)


def _rope_scaling(fields: Fields) -> RopeScaling | None:
    section = fields.section("rope_parameters") or fields.section("rope_scaling")
    rope = Fields(section, fields.where)
    kind = rope.string("rope_type", rope.string("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        rope.refuse("rope_type", "only 'default' and 'llama3' are", kind)
    return RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_position_embeddings=rope.integer("original_max_position_embeddings"),
    )


def _check_heads(config: ModelConfig) -> None:
    if config.num_heads % config.num_kv_heads:
        raise ModelError(
            f"{config.name} has {config.num_heads} query heads on {config.num_kv_heads} key-value"
            " heads, but each key-value head must serve the same number of query heads."
        )
    if config.head_dim % 2:
        raise ModelError(
            f"{config.name} has head_dim {config.head_dim}, but rotary embedding needs an even one."
        )
