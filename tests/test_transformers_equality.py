"""The same weights in Hugging Face transformers, and in our paged, chunked path: the same logits.

Both read one folder, in float32. We are fed the tokens that transformers chose (teacher forcing),
so that a tie which falls the other way does not end the comparison. The largest logit must be that
of the same token wherever it leads by more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from model_driver import Driver, prompt
from torch import Tensor

from minicache.model import Decoder
from minicache.weights import load

transformers = pytest.importorskip("transformers")

PROMPTS = 20
OUTPUTS = 32
RELATIVE = 1e-3
"""Largest difference of logits, relative to the largest logit."""
GAP = 1e-3
"""Top-1 and top-2 closer than this, in that measure, are a tie; at most 2 % of positions are."""

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
COMMON: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 96,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"head_dim": 16, "rope_parameters": {"rope_theta": 1e4, **LLAMA3}}),
    "llama-tied-biased": (
        "Llama",
        {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "qwen2": ("Qwen2", {}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 24, "tie_word_embeddings": True}),
}


class Comparison(NamedTuple):
    positions: int
    ties: int
    """Positions where top-1 and top-2 are closer than `GAP`."""
    differ: int
    """Positions where the argmax differs though there is no tie."""
    error: float
    """Largest relative difference of logits."""


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, saved by transformers."""
    family, changes = FOLDERS[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**(COMMON | changes))
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("bias"):  # ones and zeros would not show
            parameter.data += 0.2 * torch.randn_like(parameter)
    path = tmp_path_factory.mktemp("model") / request.param
    model.save_pretrained(path)
    return path


def theirs(folder: Path, prompts: Sequence[list[int]]) -> list[tuple[list[int], Tensor]]:
    """Greedy tokens of transformers, and the logits behind each: `(OUTPUTS, V)`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(tokens)) + tokens for tokens in prompts])
    mask = torch.tensor([[0] * (longest - len(tokens)) + [1] * len(tokens) for tokens in prompts])
    lengths = {"max_new_tokens": OUTPUTS, "min_new_tokens": OUTPUTS}
    outputs = model.generate(
        padded, attention_mask=mask, do_sample=False, pad_token_id=0, **lengths
    )
    results: list[tuple[list[int], Tensor]] = []
    for tokens, output in zip(prompts, outputs[:, longest:].tolist(), strict=True):
        with torch.inference_mode():  # without padding
            logits = model(torch.tensor([tokens + output])).logits[0, len(tokens) - 1 : -1]
        results.append((output, logits))
    return results


def ours(folder: Path, prompts: Sequence[list[int]], forced: Sequence[list[int]]) -> list[Tensor]:
    """Logits along the forced tokens: prompts in chunks beside others' decodes, then one by one."""
    checkpoint = load(folder)
    model = Decoder(checkpoint.config, checkpoint.tensors, dtype=torch.float32)
    driver = Driver(model, num_pages=400, num_rows=len(prompts), max_model_len=256)
    results: list[list[Tensor]] = [[] for _ in prompts]
    done = [0] * len(prompts)
    for tokens in prompts:
        driver.admit(tokens)
    while any(len(logits) < OUTPUTS for logits in results):
        open_rows = [row for row, logits in enumerate(results) if len(logits) < OUTPUTS]
        work = [(row, done[row], min(done[row] + 29, len(driver.tokens[row]))) for row in open_rows]
        driver.step(work)
        for row, _, stop in work:
            done[row] = stop
            if stop == len(prompts[row]) + len(results[row]):
                results[row].append(driver.logits[row, stop])
                driver.tokens[row][stop:] = [forced[row][len(results[row]) - 1]]
    return [torch.stack(logits) for logits in results]


def compare(folder: Path, prompts: Sequence[list[int]]) -> Comparison:
    reference = theirs(folder, prompts)
    got = torch.cat(ours(folder, prompts, [tokens for tokens, _ in reference]))
    want = torch.cat([logits for _, logits in reference])
    scale = want.abs().amax(dim=-1)
    top = want.topk(2, dim=-1)
    tie = (top.values[:, 0] - top.values[:, 1]) / scale < GAP
    differ = (got.argmax(dim=-1) != top.indices[:, 0]) & ~tie
    error = ((got - want).abs().amax(dim=-1) / scale).max()
    return Comparison(len(want), int(tie.sum()), int(differ.sum()), float(error))


def check(result: Comparison) -> None:
    print(result)
    assert result.differ == 0
    assert result.ties <= 0.02 * result.positions
    assert result.error < RELATIVE


def test_tiny_models_give_the_same_logits(folder: Path):
    prompts = [prompt(3 + 5 * seed, seed=seed, vocabulary=211) for seed in range(PROMPTS)]
    result = compare(folder, prompts)
    check(result)
    assert result.positions == PROMPTS * OUTPUTS


@pytest.mark.model
@pytest.mark.slow
def test_smollm2_gives_the_same_logits():
    from minicache.models.find import find
    from minicache.tokenizer import Tokenizer

    folder = find("smollm2-135m")
    tokenizer = Tokenizer.from_folder(folder)
    words = " ".join(Path(__file__).read_text().split())
    prompts = [tokenizer.encode(words[97 * i : 97 * i + 40 + 23 * i]) for i in range(PROMPTS)]
    check(compare(folder, prompts))
