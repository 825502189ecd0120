"""A model folder of 100,000 random weights, with a tokenizer and a chat template."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_tokenizers import byte_level

from minicache.model_config import parse_config, tensor_shapes

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 344,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_llama(parent: Path, **changes: object) -> Path:
    """Write the folder `parent/tiny-llama` and return it. `changes` are keys of config.json."""
    folder = parent / "tiny-llama"
    folder.mkdir()
    config = CONFIG | changes
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(0)
    shapes = tensor_shapes(parse_config(config, "tiny-llama"))
    tensors = {name: torch.randn(shape, generator=random) * 0.1 for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    byte_level().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder
