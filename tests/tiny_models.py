"""Tiny random models of every supported architecture, saved as transformers saves them."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "max_position_embeddings": 256,
}
TINY = {
    "llama": LlamaConfig(**SIZES),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama-tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=24),
}


def save_tiny(name, folder, dtype=torch.float32, **options):
    """Save the model `name` in `folder`, and return its parameters by name."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(TINY[name]).to(dtype)
    for value in model.parameters():  # biases and norms start as zeros and ones: make them differ
        torch.nn.init.normal_(value, std=0.1)
    model.save_pretrained(folder, **options)
    return {name: value.detach() for name, value in model.named_parameters()}
