"""The decoder: chunking, batching and positions change nothing beyond rounding."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from model_driver import FAMILY, SCALING, Driver, prompt, tiny_config, tiny_model, tiny_tensors

from minicache.attention import PerSequence, naive_attention, online_attention
from minicache.linear import DenseLinear, PackedLinear, packing_helps
from minicache.model import Decoder, make_rope
from minicache.model.norm import RmsNorm
from minicache.model.rope import rotate, stretch
from minicache.model.rows import FixedRows, WholeRows


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max() / want.abs().max())


@pytest.fixture(scope="module", params=FAMILY)
def model(request) -> Decoder:
    return tiny_model(request.param)


def last_logits(model: Decoder, tokens: list[int], cuts: list[int], **parts) -> torch.Tensor:
    """Logits behind the last token, with the prompt computed in the pieces between `cuts`."""
    driver = Driver(model, **parts)
    row = driver.admit(tokens)
    for start, stop in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        driver.step([(row, start, stop)])
    return driver.logits[row, len(tokens)]


def test_logits_of_the_last_chunk_do_not_depend_on_the_chunk_size(model):
    """imp#114: later chunks attended only to themselves. Every chunk size, to 1e-5."""
    tokens = prompt(37)
    want = last_logits(model, tokens, [])
    for size in range(1, len(tokens)):
        got = last_logits(model, tokens, list(range(size, len(tokens), size)))
        assert relative(got, want) < 1e-5, f"chunks of {size}"


def test_a_prompt_that_is_a_multiple_of_the_page_samples_once():
    """vllm#7380."""
    driver = Driver(tiny_model())
    row = driver.admit(prompt(64))
    for start in range(0, 48, 16):
        assert driver.step([(row, start, start + 16)]).tokens == []
    assert len(driver.step([(row, 48, 64)]).tokens) == 1
    assert list(driver.logits) == [(row, 64)]


def test_mixed_steps_equal_separate_steps(model):
    """sglang#39342: decodes and chunks of several requests in one pass."""
    prompts = [prompt(length, seed=length) for length in (33, 16, 47, 5)]
    mixed = Driver(model)
    a, b, c, d = (mixed.admit(tokens) for tokens in prompts)
    mixed.step([(a, 0, 33), (b, 0, 16)])
    mixed.step([(a, 33, 34), (b, 16, 17), (c, 0, 20)])
    mixed.step([(a, 34, 35), (b, 17, 18), (c, 20, 47), (d, 0, 4)])
    mixed.step([(a, 35, 36), (b, 18, 19), (c, 47, 48), (d, 4, 5)])
    for row, length in ((a, 3), (b, 3), (c, 2), (d, 1)):
        alone = Driver(model)
        alone.admit(mixed.tokens[row][: len(mixed.tokens[row]) - length])
        alone.generate(0, length)
        for (_, position), logits in alone.logits.items():
            assert relative(mixed.logits[row, position], logits) < 1e-5


def test_a_preempted_request_goes_on_as_if_nothing_had_been(model):
    """vllm#16832: the resume covers prompt and outputs, also in two chunks, on other pages."""
    smooth = Driver(model)
    smooth.admit(prompt(21))
    want = smooth.generate(0, 9)
    rough = Driver(model)
    rough.admit(prompt(21))
    first = rough.generate(0, 5)
    rough.admit(rough.tokens[0], row=0)
    assert first + rough.generate(0, 4, chunk=14) == want
    for key, logits in rough.logits.items():
        assert relative(logits, smooth.logits[key]) < 1e-5


def test_a_shared_prefix_is_read_from_the_pages_of_another(model):
    driver = Driver(model)
    first = driver.admit(prompt(40))
    driver.step([(first, 0, 40)])
    second = driver.admit([*prompt(32), *prompt(9, seed=5)], shared=driver.pages[first][:2])
    driver.step([(second, 32, 41)])
    want = last_logits(model, driver.tokens[second][:41], [])
    assert relative(driver.logits[second, 41], want) < 1e-5


@pytest.mark.parametrize("attention", [naive_attention, online_attention])
def test_attention_of_the_lessons_drives_the_model(model, attention):
    part = PerSequence(attention)
    want = last_logits(model, prompt(37), [20])
    got = last_logits(model, prompt(37), [20, 36], decode_attention=part, prefill_attention=part)
    assert relative(got, want) < 1e-5


def test_bfloat16_is_close_to_float32():
    for architecture in FAMILY:
        want = last_logits(tiny_model(architecture), prompt(60), [30])
        got = last_logits(tiny_model(architecture, dtype=torch.bfloat16), prompt(60), [30])
        assert got.dtype is torch.bfloat16
        assert relative(got.float(), want) < 0.1


def test_logits_are_made_for_sampled_rows_only(monkeypatch):
    """vllm#1732: an 8k prompt times the vocabulary was held at once."""
    rows: list[int] = []
    call = DenseLinear.__call__

    def spy(self: DenseLinear, x: torch.Tensor) -> torch.Tensor:
        if self.weight.shape[0] == 131:
            rows.append(x.shape[0])
        return call(self, x)

    monkeypatch.setattr(DenseLinear, "__call__", spy)
    driver = Driver(tiny_model())
    driver.admit(prompt(100))
    driver.admit(prompt(7))
    driver.step([(0, 0, 60), (1, 0, 7)])
    driver.step([(0, 60, 90)])
    assert rows == [1, 0]


def test_weights_of_the_right_dtype_are_not_copied():
    config = tiny_config()
    tensors = tiny_tensors(config)
    model = Decoder(config, tensors, dtype=torch.float32)
    head = model._head
    assert isinstance(head, DenseLinear)
    assert head.weight.data_ptr() == tensors["lm_head.weight"].data_ptr()
    assert model._embedding.data_ptr() == tensors["model.embed_tokens.weight"].data_ptr()
    output = model._layers[0].output
    assert isinstance(output, DenseLinear)
    name = "model.layers.0.self_attn.o_proj.weight"
    assert output.weight.data_ptr() == tensors[name].data_ptr()


# --- rotary embedding --------------------------------------------------------------------------


def test_rotation_turns_pairs_by_position_times_frequency():
    config = tiny_config(rope_scaling=None)
    rope = make_rope(config, 40, dtype=torch.float64, device=torch.device("cpu"))
    x = torch.randn(40, 3, 16, dtype=torch.float64)
    turned = rotate(x, *rope.at(torch.arange(40)))
    pairs = torch.complex(x[..., :8], x[..., 8:])
    frequency = 10_000.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    angle = torch.arange(40, dtype=torch.float64)[:, None, None] * frequency
    want = pairs * torch.polar(torch.ones_like(angle), angle)
    assert torch.allclose(turned, torch.cat([want.real, want.imag], dim=-1), atol=1e-5)


def test_scores_depend_on_the_distance_alone():
    rope = make_rope(tiny_config(), 90, dtype=torch.float64, device=torch.device("cpu"))
    q, k = torch.randn(2, 16, dtype=torch.float64)

    def score(i: int, j: int) -> float:
        turned = rotate(torch.stack([q, k])[:, None], *rope.at(torch.tensor([i, j])))
        return float(turned[0, 0] @ turned[1, 0])

    assert score(12, 5) == pytest.approx(score(89, 82), abs=1e-5)
    assert score(12, 5) != pytest.approx(score(12, 6), abs=1e-3)


def test_llama3_scaling_keeps_fast_and_slows_slow_turns():
    original = SCALING.original_max_position_embeddings
    waves = torch.tensor([3.0, 15.9, 24.0, 64.1, 1000.0])  # tokens a turn; 16 and 64 are the limits
    got = stretch(2 * math.pi / waves, SCALING) * waves / (2 * math.pi)
    blend = (original / 24.0 - 1) / (4 - 1)
    want = torch.tensor([1, 1, blend + (1 - blend) / 8, 1 / 8, 1 / 8])
    assert torch.allclose(got, want, atol=1e-4)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.bfloat16, 5e-3)])
@pytest.mark.parametrize("shape", [(1, 48), (7, 576), (5, 8, 24)])
def test_rms_norm_is_its_formula(shape, dtype, tolerance):
    generator = torch.Generator().manual_seed(sum(shape))
    x = (3 * torch.randn(shape, generator=generator)).to(dtype)
    weight = torch.randn(shape[1:], generator=generator).to(dtype)
    for scale in (1.0, 1e-4, 0.0):  # eps counts where the row is small
        got = RmsNorm(weight, 1e-5)(x * scale)
        assert got.dtype is dtype and got.shape == x.shape
        wide = (x * scale).double()
        root = (wide.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
        want = wide / root * weight.double()
        assert float((got.double() - want).abs().max()) <= tolerance * float(want.abs().max())


# --- linear layers and rows --------------------------------------------------------------------


@pytest.mark.skipif(
    not packing_helps(torch.device("cpu"), torch.bfloat16), reason="oneDNN is not in this build"
)
@pytest.mark.parametrize("outputs, inputs", [(96, 32), (40, 24), (7, 5), (131, 48)])
@pytest.mark.parametrize("rows", [0, 1, 3, 64, 130])
def test_packed_weights_give_the_same_product(outputs, inputs, rows):
    weight, bias = torch.randn(outputs, inputs).bfloat16(), torch.randn(outputs).bfloat16()
    x = torch.randn(rows, inputs).bfloat16()
    for b in (None, bias):
        got, want = PackedLinear(weight, b)(x), F.linear(x.double(), weight.double())
        want = want if b is None else want + b.double()
        assert got.shape == (rows, outputs)
        assert torch.allclose(got.double(), want, rtol=2e-2, atol=2e-2)


def test_packing_is_for_bfloat16_on_a_cpu():
    assert not packing_helps(torch.device("cpu"), torch.float32)
    assert not packing_helps(torch.device("cuda"), torch.bfloat16)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 17])
def test_fixed_rows_see_one_shape_and_change_nothing(count):
    shapes: list[tuple[int, ...]] = []

    def function(x: torch.Tensor, y: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        assert y is None
        shapes.append(tuple(x.shape))
        return x * 2, x.sum(dim=1)

    x = torch.randn(count, 3)
    for got, want in zip(FixedRows(8)(function, x, None), (x * 2, x.sum(dim=1)), strict=True):
        assert torch.equal(got, want)
    assert set(shapes) == {(8, 3)}
    assert torch.equal(WholeRows()(function, x, None)[0], x * 2)
