"""`LLM` on a tiny model: what a user calls, and what they are told when it cannot be done."""

from pathlib import Path

import pytest
import torch
from tiny_folder import make_tiny_llama

from minicache import LLM, FinishReason, RequestRefused, SamplingParams
from minicache.attention import InvariantAttention
from minicache.page_pool import PagePool
from minicache.policy import Alternating

PROMPTS = ["the cat sat", "日本の猫", [70, 80, 90, 100, 110], "x" * 100]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_llama(tmp_path_factory.mktemp("models"))


def make(folder: Path, **options) -> LLM:
    return LLM(folder, **{"dtype": "float32", "num_pages": 64, "seed": 0, **options})


def idle(llm: LLM) -> bool:
    llm.engine.pool.check()
    return not llm.engine.has_work and llm.engine.pool.num_held == 0


def test_outputs_come_in_the_order_of_the_prompts(folder: Path):
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with make(folder) as llm:
        together = llm.generate(PROMPTS, params)
        alone = [llm.generate(prompt, params)[0] for prompt in PROMPTS]
        assert [output.prompt for output in together] == PROMPTS
        assert [o.token_ids for o in together] == [o.token_ids for o in alone]
        assert {len(o.token_ids) for o in together} == {12}
        assert [o.text for o in together] == [llm.tokenizer.decode(o.token_ids) for o in together]
        assert idle(llm)


@pytest.mark.parametrize("batching", ["static", "prefill-first", "alternating", "mixed"])
@pytest.mark.parametrize("queue_order", ["fcfs", "priority"])
def test_scheduling_does_not_change_what_is_said(folder: Path, batching: str, queue_order: str):
    params = SamplingParams(max_tokens=8, ignore_eos=True, temperature=0.9, seed=3)
    with make(folder, batch_invariant=True) as llm:
        expected = [llm.generate(prompt, params)[0].token_ids for prompt in PROMPTS]
    options = {"batching": batching, "queue_order": queue_order, "batch_invariant": True}
    with make(folder, num_pages=12, max_num_batched_tokens=16, **options) as llm:
        assert [o.token_ids for o in llm.generate(PROMPTS, params)] == expected
        assert idle(llm)


def test_streaming_joins_to_the_same_text_and_closing_cancels(folder: Path):
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    with make(folder) as llm:
        whole = llm.generate("the cat", params)[0]
        deltas = list(llm.stream("the cat", params))
        assert "".join(d.text for d in deltas) == whole.text
        assert deltas[-1].finish_reason is FinishReason.LENGTH
        stream = llm.stream("the cat", params)
        next(stream)
        stream.close()
        assert idle(llm)
        assert llm.engine.trace.requests[-1].reason is FinishReason.CANCELLED


def test_chat_uses_the_template(folder: Path):
    with make(folder) as llm:
        output = llm.chat([{"role": "user", "content": "hi"}], SamplingParams(max_tokens=2))
        assert "user" in llm.tokenizer.decode(output.prompt)


def test_logprobs_are_those_of_the_chosen_tokens(folder: Path):
    with make(folder) as llm:
        params = SamplingParams(max_tokens=5, logprobs=2, ignore_eos=True)
        output = llm.generate("the cat", params)[0]
    assert [value.top[0][0] for value in output.logprobs] == output.token_ids
    assert all(value.logprob == value.top[0][1] <= 0 for value in output.logprobs)


def test_one_refused_prompt_refuses_all_and_leaves_nothing_behind(folder: Path):
    with make(folder, num_pages=4) as llm:
        with pytest.raises(RequestRefused, match="64"):
            llm.generate(["short", list(range(60, 124))], SamplingParams(max_tokens=4))
        assert idle(llm)
        assert llm.generate("short", SamplingParams(max_tokens=4))[0].token_ids


def test_a_short_request_behind_a_refused_one_is_served(folder: Path):
    with make(folder, num_pages=4) as llm:
        with pytest.raises(RequestRefused, match="page pool"):
            llm.engine.submit(list(range(60, 160)), id="too long")
        llm.engine.submit([70, 71], SamplingParams(max_tokens=3, ignore_eos=True), id="short")
        deltas = [delta for _ in range(5) for delta in llm.engine.step()]
        assert sum(len(d.token_ids) for d in deltas if d.id == "short") == 3


def test_a_token_outside_the_vocabulary_ends_its_own_request(folder: Path):
    with make(folder) as llm:
        bad, good = llm.generate([[70, 999_999], [70, 71]], SamplingParams(max_tokens=3))
        assert bad.finish_reason is FinishReason.ERROR and "999999" in str(bad.error)
        assert good.error is None and good.token_ids
        assert idle(llm)


def test_outgrowing_the_pool_ends_with_the_tokens_so_far(folder: Path):
    """nano-vllm#274, nano-vllm#277."""
    with make(folder, num_pages=4) as llm:
        output = llm.generate(list(range(60, 108)), SamplingParams(max_tokens=100, ignore_eos=True))
        assert output[0].finish_reason is FinishReason.KV_CAPACITY
        # All 64 slots are used; the last token was sampled, but has no slot.
        assert len(output[0].token_ids) == 64 - 48 + 1
        assert idle(llm)


def test_ctrl_c_frees_every_page(folder: Path, monkeypatch: pytest.MonkeyPatch):
    with make(folder) as llm:
        step, turns = llm.engine.step, iter(range(3))

        def interrupted():
            if next(turns, None) is None:
                monkeypatch.setattr(llm.engine, "step", step)
                raise KeyboardInterrupt
            return step()

        monkeypatch.setattr(llm.engine, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, SamplingParams(max_tokens=50, ignore_eos=True))
        assert idle(llm)
        assert {request.reason for request in llm.engine.trace.requests} == {FinishReason.CANCELLED}


def test_parts_of_your_own_are_used(folder: Path):
    class Counting(InvariantAttention):
        calls = 0

        def __call__(self, *arguments):
            self.calls += 1
            return super().__call__(*arguments)

    decode, chunk, pool = Counting(), Counting(), PagePool(32, 8)
    with make(
        folder,
        decode_attention=decode,
        prefill_attention=chunk,
        page_pool=pool,
        batching=Alternating(),
    ) as llm:
        llm.generate("the cat", SamplingParams(max_tokens=4, ignore_eos=True))
        assert (chunk.calls, decode.calls) == (2, 6), "2 layers: 1 step of prefill, 3 of decode"
        assert llm.engine.pool is pool
        assert isinstance(llm.engine.scheduler.batching, Alternating)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batching": "mixd"}, ["mixd", "prefill-first"]),
        ({"queue_order": "lifo"}, ["lifo", "fcfs"]),
        ({"dtype": "int8"}, ["int8", "bfloat16"]),
        ({"device": "cuda"}, ["cuda", "cpu"]),
        ({"max_model_len": 10_000}, ["10000", "8192"]),
        ({"max_num_batched_tokens": 8, "max_num_seqs": 16}, ["8", "16"]),
        ({"num_pages": 0}, ["0 pages"]),
        ({"num_pages": None, "kv_memory": 100}, ["100 bytes"]),
        ({"load_format": "pickle"}, ["pickle", "dummy"]),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(folder: Path, options, words):
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError) as caught:
        make(folder, **options)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert message.endswith(".") and "\n" not in message


def test_a_folder_without_a_tokenizer(tmp_path: Path):
    folder = make_tiny_llama(tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        make(folder)


def test_random_weights_of_a_model_that_was_not_pulled_take_ids_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path))
    with LLM("smollm2-135m", load_format="dummy", dtype="bfloat16", num_pages=4) as llm:
        with pytest.raises(ValueError, match=r"tokenizer\.json"):
            _ = llm.tokenizer
        assert len(llm.generate([5, 6, 7], SamplingParams(max_tokens=2))[0].token_ids) == 2
