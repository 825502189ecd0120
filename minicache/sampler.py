"""From logits to tokens: greedy, temperature, top-k and top-p, each row by its own parameters.

Greedy rows cost one pass over the vocabulary and all of them share it. Rows that draw share a
softmax; only those with top-k or top-p are ranked, and those need the head of the ranking, rarely
all of it. A row's result depends on its own logits, parameters, seed and position: not on its
neighbours, on chunking, or on whether the request was preempted in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import randbits
from typing import NamedTuple

import torch
from torch import Tensor

from minicache.arguments import check_whole
from minicache.plan import TokenLogprobs
from minicache.request import SamplingParams
from minicache.uniforms import Uniforms

_HEAD = 256
"""Tokens ranked at first. Ranking all of 49,152 takes about 50 times as long (one CPU core)."""


class SampledTokens(NamedTuple):
    """What one call chose. Rows are those given to the call."""

    tokens: list[int]
    """One a row, in the order of the call. That of a failed row is a valid id without meaning."""
    logprobs: dict[int, TokenLogprobs]
    """By row, for requests that asked for them."""
    failed: dict[int, str]
    """By row: its logits allow no choice, and why. The other rows are as good as ever."""


class _Row(NamedTuple):
    """The request that holds a row, and its random numbers."""

    params: SamplingParams
    uniforms: Uniforms


class Sampler:
    """Chooses the next token of every row that finished a step.

    Ties go to the lower token id, everywhere: in the argmax, at the edge of top-k and top-p, and in
    the order of reported log-probabilities.
    """

    def __init__(self, seed: int | None = None) -> None:
        """`seed` serves requests that bring none of their own; None draws one from the system."""
        if seed is not None:
            check_whole("seed", seed)
        self.seed = randbits(64) if seed is None else seed
        self._rows: dict[int, _Row] = {}

    def admit(self, row: int, number: int, params: SamplingParams) -> None:
        """`row` now belongs to request `number`. A request that comes back after a preemption gets
        the random numbers it had. Two requests with the same `params.seed` get the same numbers.
        """
        entropy = (self.seed, number) if params.seed is None else (params.seed,)
        self._rows[row] = _Row(params, Uniforms(*entropy))

    def __call__(
        self, logits: Tensor, rows: Sequence[int], positions: Sequence[int]
    ) -> SampledTokens:
        """Choose one token a row.

        `logits: (R, V)`, any float dtype; -inf marks a token that may not be chosen. `rows` were
        admitted; `positions[i]` is where in its sequence the new token of `rows[i]` will stand, and
        selects its random number.
        """
        assert logits.shape[0] == len(rows) == len(positions)
        owners = [self._rows[row] for row in rows]
        # One pass gives the greedy token and finds bad rows: a maximum is NaN if any value is.
        peak, tokens = logits.max(dim=-1)  # (R,), (R,); the first of equals
        drawn = [i for i, owner in enumerate(owners) if owner.params.temperature > 0]
        if drawn:
            uniforms = [owners[i].uniforms(positions[i]) for i in drawn]
            params = [owners[i].params for i in drawn]
            tokens[drawn] = draw(logits[drawn].float(), params, uniforms)
        return SampledTokens(
            tokens.tolist(),
            _logprobs(logits, tokens, rows, [owner.params.logprobs for owner in owners]),
            {rows[i]: _complaint(value) for i, value in _unusable(peak)},
        )


def draw(logits: Tensor, params: Sequence[SamplingParams], uniforms: Sequence[float]) -> Tensor:
    """Draw one token a row by inverting its cumulative distribution at the row's uniform number.

    `logits: (R, V)` float32, all temperatures > 0 → `(R,)` int64. Rows with top-k or top-p are
    inverted in the order of their ranking, the others in the order of the vocabulary.
    """
    probs = _soften(logits, [p.temperature for p in params])  # (R, V)
    u = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
    is_cut = [_is_cut(p, logits.shape[1]) for p in params]
    cut = [i for i, it_is in enumerate(is_cut) if it_is]
    whole = [i for i, it_is in enumerate(is_cut) if not it_is]
    tokens = torch.empty(len(params), dtype=torch.int64, device=logits.device)
    if whole:
        mass = probs[whole].cumsum(-1, dtype=torch.float64)
        tokens[whole] = _invert(mass, mass[:, -1], u[whole])
    if cut:
        tokens[cut] = _draw_cut(logits[cut], probs[cut], [params[i] for i in cut], u[cut])
    return tokens


def rank(logits: Tensor, count: int) -> Tensor:
    """The ids of the `count` largest logits, best first; equal ones by id.

    `logits: (R, V)` → `(R, min(count, V))` int64. `topk` is fast but leaves open which of several
    equal values it returns. So its picks are reordered, and a row is sorted whole only where the
    edge of the list falls between equals.
    """
    if count >= logits.shape[1]:
        return logits.sort(dim=-1, descending=True, stable=True).indices
    values, ids = logits.topk(count + 1, dim=-1)
    torn = (values[:, count - 1] == values[:, count]).nonzero()[:, 0]
    ids = ids[:, :count].sort(dim=-1).values
    order = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True).indices
    ids = ids.gather(-1, order)
    if torn.numel():
        whole = logits[torn].sort(dim=-1, descending=True, stable=True)
        ids[torn] = whole.indices[:, :count]
    return ids


def _soften(logits: Tensor, temperatures: list[float]) -> Tensor:
    """softmax(logits / temperature), `(R, V)` float32, also where the quotient would overflow."""
    scale = torch.tensor(temperatures, dtype=torch.float32, device=logits.device)
    scale = scale.clamp(min=torch.finfo(torch.float32).tiny)  # 0 / 0 is NaN
    return ((logits - logits.amax(dim=-1, keepdim=True)) / scale[:, None]).softmax(dim=-1)


def _is_cut(params: SamplingParams, vocab: int) -> bool:
    return params.top_p < 1.0 or (params.top_k is not None and params.top_k < vocab)


def _draw_cut(logits: Tensor, probs: Tensor, params: Sequence[SamplingParams], u: Tensor) -> Tensor:
    """Draw from what top-k, then top-p, leave of each row. `logits, probs: (R, V)` → `(R,)`."""
    vocab = logits.shape[1]
    top_k = torch.tensor([min(p.top_k or vocab, vocab) for p in params], device=logits.device)
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=logits.device)
    head = max([_HEAD, *(p.top_k for p in params if p.top_k)])
    tokens, done = _draw_head(logits, probs, top_k, top_p, u, head)
    rest = (~done).nonzero()[:, 0]
    if rest.numel():
        whole = logits[rest], probs[rest], top_k[rest], top_p[rest], u[rest]
        tokens[rest] = _draw_head(*whole, vocab)[0]
    return tokens


def _draw_head(
    logits: Tensor, probs: Tensor, top_k: Tensor, top_p: Tensor, u: Tensor, head: int
) -> tuple[Tensor, Tensor]:
    """Draw from the best `head` tokens → tokens `(R,)`, and whether the cut fell among them `(R,)`.

    Top-p keeps the shortest list whose mass reaches `top_p`, so the token that crosses the line
    stays, and one token stays always. After top-k its mass is taken relative to the k kept.
    """
    ids = rank(logits, head)  # (R, C)
    mass = probs.gather(-1, ids).cumsum(-1, dtype=torch.float64)  # (R, C)
    limited = top_k <= ids.shape[1]
    last = (top_k - 1).clamp(max=ids.shape[1] - 1)[:, None]
    goal = torch.where(limited, top_p * mass.gather(-1, last)[:, 0], top_p)  # (R,)
    reach = torch.searchsorted(mass, goal[:, None]).minimum(last)  # (R, 1)
    kept = mass.gather(-1, reach)[:, 0]
    done = limited | (mass[:, -1] >= goal)
    return ids.gather(-1, _invert(mass, kept, u)[:, None])[:, 0], done


def _invert(mass: Tensor, total: Tensor, u: Tensor) -> Tensor:
    """The first index whose cumulative `mass (R, C)` exceeds `u * total` → `(R,)`.

    u is at most 1 - 2**-53, and no such product rounds up to `total`. So the index is one whose own
    mass is not zero, and never one behind the cut.
    """
    found = torch.searchsorted(mass, (u * total)[:, None], right=True)[:, 0]
    return found.clamp(max=mass.shape[1] - 1)  # only rows of NaN get there


def _logprobs(
    logits: Tensor, tokens: Tensor, rows: Sequence[int], asked: Sequence[int | None]
) -> dict[int, TokenLogprobs]:
    """Natural log-probabilities under the model itself, for the rows that asked.

    They are taken from the raw logits in float32, before temperature, top-k and top-p: so they say
    what the model thinks, are comparable between requests, and a greedy request has them too.
    """
    picks = [i for i, count in enumerate(asked) if count is not None]
    if not picks:
        return {}
    raw = logits[picks].float()
    logs = raw.log_softmax(dim=-1)  # (A, V)
    chosen = logs.gather(-1, tokens[picks, None])[:, 0].tolist()
    best = rank(raw, max(1, *(asked[i] or 0 for i in picks)))  # (A, n)
    pairs = zip(best.tolist(), logs.gather(-1, best).tolist(), strict=True)
    return {
        rows[i]: TokenLogprobs(logprob, list(zip(ids, values, strict=True))[: asked[i]])
        for i, logprob, (ids, values) in zip(picks, chosen, pairs, strict=True)
    }


def _unusable(peak: Tensor) -> list[tuple[int, float]]:
    bad = (~peak.isfinite()).nonzero()[:, 0].tolist()
    return [(i, float(peak[i])) for i in bad]


def _complaint(peak: float) -> str:
    return (
        f"The largest logit is {peak}, so no token can be chosen: the model's numbers have "
        "overflowed, or every token was masked. Try dtype='float32'."
    )
