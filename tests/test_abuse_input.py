"""Bad input through `LLM`: one sentence or a right answer, and the engine as good as before.

Each case runs on an engine that serves another request at the same time, and once more afterwards.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_folder import make_tiny_llama

from minicache import LLM, FinishReason, RequestRefused, SamplingParams

GOOD = list(range(60, 80))
GREEDY = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture(autouse=True)
def one_thread():
    """A model this small loses more by waiting for a second thread than it gains."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    """One engine for the whole file: what one test breaks, the next would notice."""
    return LLM(folder, dtype="float32", num_pages=64, seed=0, queue_order="priority")


@pytest.fixture(scope="module")
def answer(folder: Path) -> list[int]:
    with LLM(folder, dtype="float32", num_pages=64) as fresh:
        return fresh.generate(GOOD, GREEDY)[0].token_ids


@pytest.fixture
def others(llm: LLM, answer: list[int]):
    """A request that is half done while the test does its worst; its tokens must not change."""
    stream = llm.stream(GOOD, GREEDY)
    tokens = list(next(stream).token_ids)
    yield
    tokens += [token for delta in stream for token in delta.token_ids]
    assert tokens == answer
    assert llm.generate(GOOD, GREEDY)[0].token_ids == answer
    llm.engine.pool.check()
    assert llm.engine.pool.num_held == 0 and not llm.engine.has_work


def is_a_sentence(message: str) -> bool:
    return message.endswith(".") and "\n" not in message and len(message) < 400


NO_PROMPTS = (
    ("", "empty"),
    ([[]], "empty"),
    (None, "None"),
    (5.5, "5.5"),
    ([1.5] * 20, "1.5"),
    ([[70.5] * 20], "70.5"),
    ([[70, float("nan")]], "nan"),
    ([70, "a"], "'a'"),
    ([70, None], "None"),
    ([[70, [71]]], r"\[71\]"),
    ([{"role": "user", "content": "hi"}], "'role'"),
    (b"hello", "hello"),
    ([b"hello"], "hello"),
    ([[70, -1]], "-1"),
    ([[70, 2**40]], str(2**40)),
    ("half a \ud800 pair", "surrogate"),
    ([list(range(60, 80)) * 60], "page pool"),
    ([[70] * 9000], "context"),
)


@pytest.mark.usefixtures("others")
def test_a_prompt_that_is_none(llm: LLM):
    """vllm#7283, vllm#7632 (empty), vllm#39734 (over the pool), and whatever else is no prompt."""
    for prompt, word in NO_PROMPTS:
        with pytest.raises(RequestRefused, match=word) as caught:
            llm.generate(prompt, GREEDY)
        assert is_a_sentence(str(caught.value))


@pytest.mark.usefixtures("others")
def test_ids_of_other_libraries_are_ids(llm: LLM, answer: list[int]):
    array, tensor = np.array(GOOD), torch.tensor(GOOD)
    for prompt in (array, list(array), tensor, tuple(GOOD)):
        assert llm.generate(prompt, GREEDY)[0].token_ids == answer
    several = llm.generate([array, list(array), tensor, tuple(GOOD)], GREEDY)
    assert [output.token_ids for output in several] == [answer] * 4


@pytest.mark.usefixtures("others")
def test_an_id_over_the_vocabulary_ends_with_an_error_that_names_it(llm: LLM):
    (output,) = llm.generate([[70, 2**31 - 1]], GREEDY)
    assert output.finish_reason is FinishReason.ERROR and not output.token_ids
    assert output.error is not None and str(2**31 - 1) in output.error


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"max_tokens": None},
        {"max_tokens": 2.5},
        {"max_tokens": "5"},
        {"max_tokens": float("nan")},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": "hot"},
        {"temperature": None},
        {"top_k": 0},
        {"top_k": 2.5},
        {"top_p": float("nan")},
        {"top_p": "most"},
        {"seed": 1.5},
        {"seed": "lucky"},
        {"logprobs": 21},
        {"logprobs": 2.5},
        {"stop": "END"},
        {"stop": ("",)},
        {"stop": (3,)},
        {"stop": None},
        {"stop_token_ids": 5},
        {"stop_token_ids": ("a",)},
    ],
    ids=str,
)
def test_parameters_of_the_wrong_kind_are_named(wrong: dict[str, object]):
    with pytest.raises(ValueError) as caught:
        SamplingParams(**wrong)
    (name,) = wrong
    assert is_a_sentence(str(caught.value))
    assert name in str(caught.value) or "stop string" in str(caught.value)


@pytest.mark.usefixtures("others")
def test_extremes_that_are_greedy(llm: LLM, answer: list[int]):
    for extreme in (
        {"temperature": 1e-30},
        {"temperature": 5e-324},
        {"temperature": np.float32(1e-30)},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-300},
        {"max_tokens": np.int64(4)},
    ):
        params = SamplingParams(**{"max_tokens": 4, "ignore_eos": True, **extreme})
        assert llm.generate(GOOD, params)[0].token_ids == answer


@pytest.mark.usefixtures("others")
def test_extremes_that_draw_are_repeatable(llm: LLM):
    for extreme in (
        {"top_k": 2**70},
        {"seed": -(2**70)},
        {"temperature": 1e308},
        {"logprobs": 20, "top_k": 345},
    ):
        params = SamplingParams(
            **{"max_tokens": 4, "ignore_eos": True, "temperature": 1.0, "seed": 3, **extreme}
        )
        first, second = llm.generate([GOOD, GOOD], params)
        assert first.error is None and len(first.token_ids) == 4
        assert first.token_ids == second.token_ids


@pytest.mark.usefixtures("others")
def test_a_stop_string_longer_than_the_text(llm: LLM, answer: list[int]):
    params = SamplingParams(max_tokens=4, ignore_eos=True, stop=("x" * 100_000, "\ud800"))
    (output,) = llm.generate(GOOD, params)
    assert output.token_ids == answer and output.text == llm.tokenizer.decode(answer)


@pytest.mark.usefixtures("others")
def test_what_would_stop_a_queue_a_trace_or_a_cache_is_refused(llm: LLM):
    """Each of these once got half way in, and every later step raised."""
    for name, value in (
        ("priority", None),
        ("priority", 1.0),
        ("priority", 2**31),
        ("arrival", "now"),
        ("arrival", float("nan")),
        ("salt", None),
        ("params", {"max_tokens": 3}),
    ):
        rows = len(llm.engine.trace.requests)
        with pytest.raises(RequestRefused, match=f"{name} is ") as caught:
            llm.engine.submit(GOOD, **{name: value})
        assert is_a_sentence(str(caught.value))
        assert len(llm.engine.trace.requests) == rows


@pytest.mark.usefixtures("others")
def test_a_salt_may_be_any_string(llm: LLM, answer: list[int]):
    """A server passes on what a client sends, and JSON allows half a surrogate pair.

    The request is submitted by hand, and `generate` in between leaves its deltas alone.
    """
    llm.engine.submit(GOOD, GREEDY, id="odd", salt="\ud800")
    llm.generate(GOOD, SamplingParams(max_tokens=9, ignore_eos=True))
    mine = [delta for delta in llm.engine.step() if delta.id == "odd"]
    assert [token for delta in mine for token in delta.token_ids] == answer
    assert mine[-1].finish_reason is FinishReason.LENGTH


def test_a_name_like_the_engines_own_is_no_clash(folder: Path):
    with LLM(folder, dtype="float32", num_pages=64) as llm:
        llm.engine.submit(GOOD, GREEDY, id="request-1")
        (output,) = llm.generate(GOOD, GREEDY)
        assert output.id != "request-1" and len(output.token_ids) == 4


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"page_size": 0, "num_pages": None}, "page_size is 0"),
        ({"page_size": -3, "num_pages": None}, "page_size is -3"),
        ({"page_size": 2.5}, "page_size is 2.5"),
        ({"num_pages": "4"}, "num_pages is '4'"),
        ({"num_pages": 2.5}, "num_pages is 2.5"),
        ({"device": "nonsense"}, "nonsense"),
        ({"dtype": torch.int8}, "int8"),
        ({"dtype": None}, "None"),
        ({"watermark": float("nan")}, "nan"),
        ({"watermark": "low"}, "low"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"max_num_seqs": 1.5}, "max_num_seqs is 1.5"),
        ({"seed": "x"}, "seed is 'x'"),
    ],
    ids=str,
)
def test_options_that_are_none(folder: Path, options: dict[str, object], word: str):
    with pytest.raises(ValueError) as caught:
        LLM(folder, **{"dtype": "float32", "num_pages": 64, **options})
    assert word in str(caught.value) and is_a_sentence(str(caught.value))


@pytest.mark.parametrize(
    "options",
    [{"max_num_seqs": 1}, {"page_size": 1}, {"page_size": 3, "num_pages": 8}, {"num_pages": 2}],
    ids=str,
)
def test_the_smallest_engine_that_can_serve_it_does(folder: Path, answer: list[int], options):
    with LLM(folder, **{"dtype": "float32", "num_pages": 64, **options}) as llm:
        outputs = llm.generate([GOOD, GOOD], GREEDY)
        assert [output.token_ids for output in outputs] == [answer] * 2


def test_one_slot_holds_no_prompt(folder: Path):
    with LLM(folder, dtype="float32", num_pages=1, page_size=1) as llm:
        with pytest.raises(RequestRefused, match="page pool stores 1"):
            llm.generate([70], GREEDY)
        assert not llm.engine.has_work


def test_weights_that_are_nan_end_in_a_sentence(folder: Path, tmp_path: Path):
    from safetensors.torch import load_file, save_file

    spoiled = make_tiny_llama(tmp_path)
    tensors = load_file(spoiled / "model.safetensors")
    tensors["model.norm.weight"][0] = torch.nan
    save_file(tensors, spoiled / "model.safetensors")
    with LLM(spoiled, dtype="float32", num_pages=64) as llm:
        for params in (GREEDY, SamplingParams(temperature=1.0, top_k=5, logprobs=3)):
            (output,) = llm.generate(GOOD, params)
            assert output.finish_reason is FinishReason.ERROR and not output.token_ids
            assert output.error is not None and is_a_sentence(output.error)
        assert llm.engine.pool.num_held == 0
