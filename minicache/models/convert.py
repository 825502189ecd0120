"""GGUF → a model folder: safetensors, config.json and tokenizer.json.

Weights are stored as float32. The dequantized values of SmolLM2 do not fit into 16 bits: rounding
would change most of them (tests/test_models.py counts them), and float32 is mapped into memory as
it is. Shards keep the converter's own memory small, whatever the size of the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minicache.model_config import ModelConfig, tensor_shapes
from minicache.models.gguf_file import GgufFile, open_gguf
from minicache.models.gguf_model import gguf_config, gguf_tensors
from minicache.models.gguf_tokenizer import gguf_tokenizer, special_token_ids, tokenizer_settings

if TYPE_CHECKING:
    from minicache.models.gguf_model import NamedArray

SHARD_BYTES = 128 * 2**20

Tick = Callable[[int, int], None]
"""Called with the number of weights done, and of all."""


def convert_gguf(source: Path, folder: Path, name: str, tick: Tick) -> ModelConfig:
    """Write the model in the GGUF file `source` into the empty `folder`, and return its config.

    Raises `ModelError` for a file that is damaged or not supported; a full disk raises what the
    writing library raises (`OSError`, `SafetensorError`).
    """
    file = open_gguf(source)
    config = gguf_config(file, name)
    tokenizer = gguf_tokenizer(file)
    _write_json(folder / "config.json", _config_json(config, file))
    _write_json(folder / "generation_config.json", _special_ids_json(file))
    _write_json(folder / "tokenizer_config.json", tokenizer_settings(file))
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    _write_weights(
        folder, config, _ticking(gguf_tensors(file, config), config.num_parameters, tick)
    )
    return config


def _ticking(tensors: Iterator[NamedArray], total: int, tick: Tick) -> Iterator[NamedArray]:
    done = 0
    for name, values in tensors:
        done += values.size
        tick(done, total)
        yield name, values


def _write_weights(folder: Path, config: ModelConfig, tensors: Iterator[NamedArray]) -> None:
    """Shards in the model's order, and the index that says which tensor lies in which."""
    shards = plan_shards(config, SHARD_BYTES)
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        path = folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _save_shard(path, [next(tensors) for _ in names])
        weight_map |= dict.fromkeys(names, path.name)
    index = {"metadata": {"total_size": 4 * config.num_parameters}, "weight_map": weight_map}
    _write_json(folder / "model.safetensors.index.json", index)


def plan_shards(config: ModelConfig, limit: int) -> list[list[str]]:
    """Names of consecutive tensors, cut before their float32 bytes outgrow `limit`."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, shape in tensor_shapes(config).items():
        num_bytes = 4 * math.prod(shape)
        if shards[-1] and size + num_bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += num_bytes
    return shards


def _save_shard(path: Path, tensors: list[NamedArray]) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(values) for name, values in tensors}
    save_file(arrays, path, {"format": "pt"})
    path.chmod(0o644)  # the library keeps it from other users of a shared cache


def _config_json(config: ModelConfig, file: GgufFile) -> dict[str, Any]:
    """As transformers reads it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": config.architecture.value,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    } | _special_ids_json(file)


def _special_ids_json(file: GgufFile) -> dict[str, int]:
    ids = special_token_ids(file)
    return {f"{role}_token_id": ids[role] for role in ("bos", "eos", "pad") if role in ids}


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
