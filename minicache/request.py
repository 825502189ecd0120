"""A request: what was asked, how far it has got, and how it ended.

There are no prefill and decode phases. A request has a known sequence (prompt, then outputs) and
a number of tokens whose keys and values are stored; a step closes the gap. A gap of one is a
decode, a larger one is a chunk of prefill, and after a preemption the same rule recomputes prompt
and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from minicache.arguments import check_labels, check_number, check_strings, check_whole, token_ids


class RequestRefused(ValueError):
    """A request was refused before anything was allocated. It names value, limit and way out."""


class RequestState(Enum):
    """Where a request is. Only FINISHED is terminal, and it is entered once."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(Enum):
    """Why a request ended."""

    STOP = "stop"
    """An end-of-sequence token, a stop token or a stop string."""
    LENGTH = "length"
    """`max_tokens` or the model's context was reached."""
    CANCELLED = "cancelled"
    """The caller went away."""
    KV_CAPACITY = "kv_capacity"
    """It outgrew the whole page pool; its tokens so far are returned."""
    ERROR = "error"
    """A step failed for it; `Request.error` says how."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen and when to stop. Temperature 0 is greedy."""

    max_tokens: int = 128
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """Report the chosen token's log-probability, and those of this many best tokens (may be 0)."""

    def __post_init__(self) -> None:
        """Check every value once. Raises `ValueError` in a sentence."""
        self._check_kinds()
        if self.max_tokens < 1:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, but a request must ask for at least 1 token."
            )
        if not self.temperature >= 0.0 or self.temperature == float("inf"):
            raise ValueError(
                f"temperature is {self.temperature}, but it must be 0 (greedy) or positive."
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(
                f"top_k is {self.top_k}, but it must be at least 1; leave it out to keep all."
            )
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(
                f"top_p is {self.top_p}, but it must lie in (0, 1]; 1 keeps every token."
            )
        if any(not text for text in self.stop):
            raise ValueError("A stop string is empty, and would stop at once; leave it out.")
        if self.logprobs is not None and not 0 <= self.logprobs <= 20:
            raise ValueError(
                f"logprobs is {self.logprobs}, but at most 20 alternatives are reported."
            )

    def _check_kinds(self) -> None:
        check_whole("max_tokens", self.max_tokens)
        check_number("temperature", self.temperature)
        check_number("top_p", self.top_p)
        for name in ("top_k", "seed", "logprobs"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_strings("stop", self.stop)
        try:
            token_ids(self.stop_token_ids)
        except ValueError:
            raise ValueError(
                f"stop_token_ids is {self.stop_token_ids!r}, but it must be a tuple of token ids."
            ) from None


class Request:
    """One request on its way through the engine.

    Positions: `tokens[:num_prompt_tokens]` is the prompt. Keys and values of positions
    `[0, num_computed)` are stored and committed; `[num_computed, num_scheduled)` are being
    computed by steps in flight. The step that computes the last known position samples a token,
    which is in flight too until it is known.
    """

    __slots__ = (
        "id", "number", "params", "priority", "client", "salt", "arrival",
        "tokens", "num_prompt_tokens", "max_total_tokens",
        "state", "finish_reason", "error",
        "stop_tokens", "row", "pages", "page_hashes", "capacity",
        "num_computed", "num_scheduled", "num_cached", "num_preemptions",
    )  # fmt: skip

    def __init__(
        self,
        id: str,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
        client: str = "",
        salt: str = "",
        arrival: float = 0.0,
    ) -> None:
        """`id` is the caller's name for it; a lower `priority` number is served first; `arrival` is
        the planned send time in seconds on the engine's clock. Only requests of the same `salt`
        share cached pages. Raises `RequestRefused` for what is not of these kinds.
        """
        self.id = id
        self.number = -1
        """Unique in this engine, given on submit: also the request's row in the trace."""
        self.params = params or SamplingParams()
        self.priority = priority
        self.client = client
        self.salt = salt
        self.arrival = arrival
        try:
            check_labels(priority, arrival, salt)
            self.tokens: list[int] = token_ids(prompt)
        except ValueError as error:
            raise RequestRefused(str(error)) from None
        self.num_prompt_tokens = len(self.tokens)
        self.max_total_tokens = self.num_prompt_tokens + self.params.max_tokens
        self.stop_tokens = frozenset(self.params.stop_token_ids)
        """Tokens that end it; the scheduler adds the model's own, unless they are to be ignored."""
        self.state = RequestState.WAITING
        self.finish_reason: FinishReason | None = None
        self.error: str | None = None
        self.row = -1
        """Its row of the page table while it holds one, else -1."""
        self.pages: list[int] = []
        self.page_hashes: list[bytes] = []
        """Chained hashes of its full pages, for the prefix cache."""
        self.capacity = 0
        """Tokens that fit in `pages`."""
        self.num_computed = 0
        self.num_scheduled = 0
        self.num_cached = 0
        """Tokens of the first admission that the prefix cache supplied."""
        self.num_preemptions = 0

    @property
    def outputs(self) -> list[int]:
        """The tokens generated so far."""
        return self.tokens[self.num_prompt_tokens :]

    @property
    def num_outputs(self) -> int:
        """How many tokens were generated so far."""
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def num_pending(self) -> int:
        """Sampled tokens that are still in flight."""
        return max(self.num_scheduled + 1 - len(self.tokens), 0)

    @property
    def finished(self) -> bool:
        """Whether it has ended, for whatever reason."""
        return self.state is RequestState.FINISHED

    def __repr__(self) -> str:
        """Name, state and progress, for dumps."""
        return (
            f"Request({self.id!r}, {self.state.value}, prompt {self.num_prompt_tokens}, "
            f"outputs {self.num_outputs}, computed {self.num_computed}, pages {len(self.pages)})"
        )
