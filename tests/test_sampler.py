"""The sampler: exact distributions, exact ties, and rows that do not feel their neighbours."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from minicache.plan import TokenLogprobs
from minicache.request import SamplingParams
from minicache.sampler import Sampler, rank
from minicache.uniforms import Uniforms


def sample_row(logits: torch.Tensor, params: SamplingParams, count: int) -> list[int]:
    """`count` draws from one row of logits `(V,)`, at positions 0, 1, 2, ..."""
    sampler = Sampler(seed=11)
    sampler.admit(0, 0, params)
    return [sampler(logits[None], [0], [position]).tokens[0] for position in range(count)]


def exact(logits: torch.Tensor, params: SamplingParams) -> np.ndarray:
    """The distribution that `params` ask for, written the slow way, one token at a time."""
    z = [x / params.temperature for x in logits.double().tolist()]
    order = sorted(range(len(z)), key=lambda token: (-z[token], token))
    order = order[: params.top_k or len(z)]
    weights = {token: math.exp(z[token] - z[order[0]]) for token in order}
    total = sum(weights.values())
    kept, mass = [], 0.0
    for token in order:
        kept.append(token)
        mass += weights[token] / total
        if mass >= params.top_p:
            break
    probs = np.zeros(len(z))
    for token in kept:
        probs[token] = weights[token]
    return probs / probs.sum()


def test_uniforms_are_the_stream_of_philox_in_any_order():
    uniforms = Uniforms(3, 4)
    forward = [uniforms(position) for position in range(200)]
    assert [uniforms(position) for position in reversed(range(200))] == forward[::-1]
    generator = np.random.Generator(np.random.Philox(key=uniforms._key))
    assert forward == generator.random(200).tolist()
    assert Uniforms(3, 4)(10**12) == Uniforms(3, 4)(10**12)


def test_uniforms_of_other_seeds_and_requests_are_unrelated():
    seeds = [(1,), (1, 0), (0, 1), (-1,), (2**64 + 7,), (2**40,), (1, 2**32), (2**32 + 1,)]
    seeds += [(1 + 7 * 2**32, 9), (1, 7 + 9 * 2**32), (1, 7, 9)]
    first = {Uniforms(*seed)(0) for seed in seeds}
    assert len(first) == len(seeds)
    paired = np.array([[Uniforms(0, n)(0), Uniforms(0, n + 1)(0)] for n in range(2000)])
    assert abs(np.corrcoef(paired.T)[0, 1]) < 0.07
    counts = np.histogram(paired[:, 0], bins=20, range=(0, 1))[0]
    assert chisquare(counts).pvalue > 1e-4


DISTRIBUTIONS = {
    "temperature 1": SamplingParams(temperature=1.0, seed=1),
    "hot": SamplingParams(temperature=2.5, seed=2),
    "cold": SamplingParams(temperature=0.4, seed=3),
    "top-k": SamplingParams(temperature=1.0, top_k=4, seed=4),
    "top-p": SamplingParams(temperature=1.0, top_p=0.7, seed=5),
    "top-k then top-p": SamplingParams(temperature=1.3, top_k=6, top_p=0.8, seed=6),
    "no seed": SamplingParams(temperature=1.0),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_follow_the_exact_distribution(name):
    params = DISTRIBUTIONS[name]
    logits = torch.randn(12, generator=torch.Generator().manual_seed(8)) * 1.5
    want = exact(logits, params)
    counts = np.bincount(sample_row(logits, params, 4000), minlength=12)
    assert not counts[want == 0].any(), "a token outside the cut was drawn"
    assert chisquare(counts[want > 0], 4000 * want[want > 0]).pvalue > 1e-3


def test_a_wrong_distribution_is_noticed_by_the_chi_square_test():
    params = SamplingParams(temperature=1.0, seed=1)
    logits = torch.randn(12, generator=torch.Generator().manual_seed(8)) * 1.5
    counts = np.bincount(sample_row(logits, params, 4000), minlength=12)
    off = exact(logits, SamplingParams(temperature=1.1))
    assert chisquare(counts, 4000 * off).pvalue < 1e-3


@pytest.mark.parametrize("vocab", [1, 2, 255, 256, 257, 300, 1009])
@pytest.mark.parametrize("scale", [0.0, 0.3, 4.0])
def test_every_draw_inverts_the_exact_distribution(vocab, scale):
    """Against the slow oracle at the very same uniform number, for short and long rankings."""
    logits = torch.randn(vocab, generator=torch.Generator().manual_seed(vocab)) * scale
    cuts = [(None, 0.9003), (None, 0.9991), (3, 1.0), (3, 0.5), (280, 0.9903), (2 * vocab, 0.9703)]
    for top_k, top_p in cuts:
        params = SamplingParams(temperature=0.9, top_k=top_k, top_p=top_p, seed=21)
        probs = exact(logits, params)
        order = sorted(range(vocab), key=lambda token: (-float(logits[token]), token))
        edges = probs[order].cumsum()
        uniforms = Uniforms(21)
        for position, token in enumerate(sample_row(logits, params, 20)):
            u = uniforms(position)
            at = order.index(token)
            assert edges[at] >= u - 1e-5
            assert at == 0 or edges[at - 1] <= u + 1e-5


def test_greedy_takes_the_lowest_of_equal_tokens():
    logits = torch.zeros(2, 1000)
    logits[1, [400, 700]] = 2.0
    sampler = Sampler(seed=0)
    for row in range(2):
        sampler.admit(row, row, SamplingParams())
    for dtype in (torch.float32, torch.bfloat16):
        assert sampler(logits.to(dtype), [0, 1], [5, 5]).tokens == [0, 400]


def test_ties_at_the_edge_of_top_k_go_to_the_lower_id():
    logits = torch.zeros(600)
    logits[[500, 90]] = 1.0
    drawn = set(sample_row(logits, SamplingParams(temperature=9.0, top_k=4, seed=0), 200))
    assert drawn == {90, 500, 0, 1}


def test_ties_at_the_edge_of_top_p_go_to_the_lower_id():
    logits = torch.zeros(1000)  # every token has mass 0.001
    drawn = set(sample_row(logits, SamplingParams(temperature=1.0, top_p=0.0035, seed=0), 200))
    assert drawn == {0, 1, 2, 3}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 45))
@settings(derandomize=True, max_examples=200)
def test_rank_equals_a_sort_by_value_then_id(values, count):
    logits = torch.tensor([values, values[::-1]], dtype=torch.float32)
    for row, ids in zip(logits.tolist(), rank(logits, count).tolist(), strict=True):
        assert ids == sorted(range(len(row)), key=lambda i: (-row[i], i))[:count]


def test_a_tiny_top_p_keeps_the_best_token():
    logits = torch.randn(300, generator=torch.Generator().manual_seed(1))
    params = SamplingParams(temperature=5.0, top_p=1e-12, seed=0)
    assert set(sample_row(logits, params, 50)) == {int(logits.argmax())}


def test_top_k_of_one_is_greedy():
    logits = torch.randn(300, generator=torch.Generator().manual_seed(2))
    params = SamplingParams(temperature=5.0, top_k=1, seed=0)
    assert set(sample_row(logits, params, 50)) == {int(logits.argmax())}


def test_a_top_k_over_the_vocabulary_changes_nothing():
    logits = torch.randn(50, generator=torch.Generator().manual_seed(3))
    free = sample_row(logits, SamplingParams(temperature=1.0, seed=0), 50)
    assert sample_row(logits, SamplingParams(temperature=1.0, top_k=50, seed=0), 50) == free
    assert sample_row(logits, SamplingParams(temperature=1.0, top_k=10**9, seed=0), 50) == free


@pytest.mark.parametrize("temperature", [1e-3, 1e-8, 1e-40, 5e-324])
@pytest.mark.parametrize("cut", [{}, {"top_p": 0.9}, {"top_k": 5}])
def test_a_temperature_near_zero_is_greedy(temperature, cut):
    logits = torch.randn(400, generator=torch.Generator().manual_seed(4)) * 30
    params = SamplingParams(temperature=temperature, seed=0, **cut)
    assert set(sample_row(logits, params, 20)) == {int(logits.argmax())}


def test_a_huge_temperature_is_uniform():
    logits = torch.randn(10, generator=torch.Generator().manual_seed(5)) * 30
    counts = np.bincount(sample_row(logits, SamplingParams(temperature=1e30, seed=3), 3000))
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.99}, {"top_k": 40}])
def test_masked_tokens_are_never_drawn(cut):
    logits = torch.zeros(500)
    logits[3:] = -math.inf
    assert set(sample_row(logits, SamplingParams(temperature=2.0, seed=0, **cut), 100)) == {0, 1, 2}


def test_the_edges_of_the_unit_interval_stay_inside_the_cut(monkeypatch):
    logits = torch.zeros(700)
    logits[:100] = -math.inf
    logits[600:] = -math.inf
    for u, plain, cut in ((0.0, 100, 100), (1 - 2.0**-53, 599, 104)):
        monkeypatch.setattr(Uniforms, "__call__", lambda self, position, u=u: u)
        assert sample_row(logits, SamplingParams(temperature=1.0), 1) == [plain]
        assert sample_row(logits, SamplingParams(temperature=1.0, top_k=5), 1) == [cut]


@given(st.floats(min_value=1e-300, max_value=1e300))
@settings(derandomize=True, max_examples=500)
def test_the_largest_uniform_number_never_reaches_the_total(total):
    assert (1 - 2.0**-53) * total < total


MIXED = [
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.0, seed=5, logprobs=3),
    SamplingParams(temperature=1.2, top_k=7),
    SamplingParams(temperature=1.2, top_p=0.8, logprobs=0),
    SamplingParams(temperature=1.0, top_p=0.9999, seed=9),
    SamplingParams(temperature=0.9, top_k=300, top_p=0.95, logprobs=2),
    SamplingParams(logprobs=1),
]


@pytest.mark.parametrize("vocab", [50, 257, 49_999])
def test_a_row_does_not_feel_its_neighbours(vocab):
    logits = torch.randn(len(MIXED), vocab, generator=torch.Generator().manual_seed(vocab)) * 2
    together = Sampler(seed=3)
    for row, params in enumerate(MIXED):
        together.admit(row, 100 + row, params)
    rows = list(range(len(MIXED)))
    whole = together(logits, rows, [40 + row for row in rows])
    for row, params in enumerate(MIXED):
        alone = Sampler(seed=3)
        alone.admit(31, 100 + row, params)
        one = alone(logits[row : row + 1], [31], [40 + row])
        assert one.tokens == [whole.tokens[row]]
        assert one.logprobs.get(31) == whole.logprobs.get(row)
    backwards = together(logits.flip(0), rows[::-1], [40 + row for row in rows[::-1]])
    assert backwards.tokens == whole.tokens[::-1]
    assert backwards.logprobs == whole.logprobs


def test_a_preempted_request_draws_the_same_tokens_again():
    logits = torch.randn(1, 100, generator=torch.Generator().manual_seed(6))
    sampler = Sampler(seed=1)
    params = SamplingParams(temperature=1.5)
    sampler.admit(0, 7, params)
    first = [sampler(logits, [0], [position]).tokens[0] for position in range(30)]
    sampler.admit(0, 8, params)  # another request takes the row
    other = [sampler(logits, [0], [position]).tokens[0] for position in range(30)]
    sampler.admit(4, 7, params)  # and the first comes back in another one
    again = [sampler(logits, [4], [position]).tokens[0] for position in range(20, 30)]
    assert again == first[20:]
    assert other != first


def test_a_request_seed_holds_whatever_the_sampler_and_the_number():
    logits = torch.randn(1, 100, generator=torch.Generator().manual_seed(6))
    runs = []
    for seed, number in ((1, 2), (3, 4)):
        sampler = Sampler(seed=seed)
        sampler.admit(0, number, SamplingParams(temperature=1.5, seed=-4))
        runs.append([sampler(logits, [0], [position]).tokens[0] for position in range(20)])
    assert runs[0] == runs[1]


def test_samplers_without_a_seed_differ():
    logits = torch.randn(1, 1000, generator=torch.Generator().manual_seed(6))
    runs = []
    for _ in range(2):
        sampler = Sampler()
        sampler.admit(0, 0, SamplingParams(temperature=1.5))
        runs.append([sampler(logits, [0], [position]).tokens[0] for position in range(20)])
    assert runs[0] != runs[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_are_those_of_the_raw_logits(dtype):
    logits = (torch.randn(2, 3000, generator=torch.Generator().manual_seed(7)) * 3).to(dtype)
    sampler = Sampler(seed=0)
    sampler.admit(0, 0, SamplingParams(temperature=0.3, top_k=2, logprobs=4))
    sampler.admit(1, 1, SamplingParams(logprobs=0))
    got = sampler(logits, [0, 1], [9, 9])
    want = logits.double().log_softmax(dim=-1)
    for row in range(2):
        token = got.tokens[row]
        assert got.logprobs[row].logprob == pytest.approx(float(want[row, token]), abs=1e-5)
    assert got.logprobs[1] == TokenLogprobs(got.logprobs[1].logprob, [])
    top = got.logprobs[0].top
    best = sorted(range(3000), key=lambda token: (-float(logits[0, token]), token))[:4]
    assert [token for token, _ in top] == best
    assert [value for _, value in top] == pytest.approx(want[0, best].tolist(), abs=1e-5)


def test_only_rows_that_asked_get_logprobs_and_no_more_than_there_are():
    sampler = Sampler(seed=0)
    sampler.admit(3, 0, SamplingParams())
    sampler.admit(5, 1, SamplingParams(logprobs=20))
    got = sampler(torch.zeros(2, 6), [3, 5], [1, 1])
    assert list(got.logprobs) == [5]
    assert [token for token, _ in got.logprobs[5].top] == list(range(6))


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("params", MIXED)
def test_a_bad_row_is_reported_and_the_others_are_served(poison, params):
    clean = torch.randn(3, 400, generator=torch.Generator().manual_seed(9))
    bad = clean.clone()
    bad[1, 123] = poison
    sampler = Sampler(seed=0)
    for row in range(3):
        sampler.admit(row, row, params)
    want = sampler(clean, [0, 1, 2], [4, 4, 4])
    got = sampler(bad, [0, 1, 2], [4, 4, 4])
    assert want.failed == {}
    assert list(got.failed) == [1]
    assert str(poison) in got.failed[1] and "float32" in got.failed[1]
    for row in (0, 2):
        assert got.tokens[row] == want.tokens[row]
        assert got.logprobs.get(row) == want.logprobs.get(row)
    assert 0 <= got.tokens[1] < 400


def test_a_row_with_every_token_masked_is_reported():
    sampler = Sampler(seed=0)
    for row, params in enumerate(MIXED):
        sampler.admit(row, row, params)
    rows = range(len(MIXED))
    got = sampler(torch.full((len(MIXED), 300), -math.inf), rows, [0] * len(MIXED))
    assert list(got.failed) == list(rows)


def test_no_rows_give_no_tokens():
    assert Sampler()(torch.empty(0, 10), [], []) == ([], {}, {})


def test_greedy_rows_are_not_sorted_or_softened(monkeypatch):
    """The fast path: neither a softmax nor a ranking for a batch of greedy rows."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the greedy path drew or ranked")

    monkeypatch.setattr("minicache.sampler.draw", refuse)
    monkeypatch.setattr("minicache.sampler.rank", refuse)
    sampler = Sampler()
    for row in range(4):
        sampler.admit(row, row, SamplingParams())
    assert sampler(torch.eye(4), range(4), [0] * 4).tokens == [0, 1, 2, 3]


def test_random_numbers_need_no_torch():
    code = "import sys, minicache.uniforms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
