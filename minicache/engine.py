"""Text in, text out: requests by name, tokens turned into text as they come, stop strings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from minicache.core import EngineCore, Progress
from minicache.page_pool import PagePool
from minicache.plan import TokenLogprobs
from minicache.request import FinishReason, Request, RequestRefused, SamplingParams
from minicache.scheduler import Scheduler, TokenEvent
from minicache.text_stream import TextStream
from minicache.tokenizer import Tokenizer
from minicache.trace import Trace


class Delta(NamedTuple):
    """What one step brought one request. The last delta of a request has a `finish_reason`.

    The joined `text` of all deltas is the text of the output; a stop token or what follows a stop
    string has no text, though its id is among `token_ids`.
    """

    id: str
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: TokenLogprobs | None = None


@dataclass(slots=True)
class _Open:
    """A request that has not ended, and its half-finished text."""

    request: Request
    stream: TextStream | None
    pending: list[int] = field(default_factory=list[int])


class Engine:
    """The step loop seen from outside: `submit`, `step`, `cancel`. Not thread-safe.

    `step()` returns the deltas of one step. Every submitted request ends in exactly one delta with
    a `finish_reason`, whatever happens to it.
    """

    def __init__(self, core: EngineCore, tokenizer: Tokenizer | None) -> None:
        """Without a tokenizer, prompts are token ids and deltas carry no text."""
        self.core = core
        self.tokenizer = tokenizer
        self._open: dict[int, _Open] = {}
        self._ended: list[Delta] = []
        self._named = 0

    @property
    def has_work(self) -> bool:
        """Whether a further `step()` can bring anything."""
        return self.core.has_work or bool(self._ended)

    @property
    def trace(self) -> Trace:
        """What has happened so far."""
        return self.core.trace

    @property
    def scheduler(self) -> Scheduler:
        """Who decides what runs."""
        return self.core.scheduler

    @property
    def pool(self) -> PagePool:
        """Which page belongs to whom."""
        return self.core.pool

    def clock(self) -> float:
        """Seconds on the engine's clock, which stamps the trace."""
        return self.core.clock()

    def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        id: str | None = None,
        priority: int = 0,
        client: str = "",
        salt: str = "",
        arrival: float | None = None,
    ) -> str:
        """Queue a prompt (text or token ids) and return the request's id.

        `arrival` is the planned send time on the engine's clock, now by default. Only requests of
        the same `salt` share cached pages. Raises `RequestRefused`, with nothing changed, when the
        request can never be served.
        """
        if params is not None and not isinstance(cast(object, params), SamplingParams):
            raise RequestRefused(f"params is {params!r}, but it must be a SamplingParams.")
        request = Request(
            id=self._name() if id is None else id,
            prompt=self._encode(prompt),
            params=params,
            priority=priority,
            client=client,
            salt=salt,
            arrival=self.clock() if arrival is None else arrival,
        )
        stream = TextStream(self.tokenizer, request.params.stop) if self.tokenizer else None
        self.core.submit(request)
        self._open[request.number] = _Open(request, stream)
        return request.id

    def cancel(self, id: str) -> None:
        """End a request wherever it is; its last delta comes with the next `step()`."""
        self._ended += self._close(self.core.cancel(id))

    def step(self) -> list[Delta]:
        """Run or collect one step, and return what it brought.

        What the scheduler or its parts raise comes out here, with every request ended; their last
        deltas come with the next `step()`. So does Ctrl-C, with the requests of its step ended.
        """
        progress = self._turn() if self.core.has_work else Progress([], [], None)
        deltas, self._ended = self._ended, []
        ended = {request.number for request in progress.finished}
        deltas += [
            delta
            for event in progress.tokens
            for delta in self._token(event, progress, event.request.number in ended)
        ]
        return deltas + self._close(progress.finished)

    def put_back(self, deltas: Iterable[Delta]) -> None:
        """Let the next `step()` return `deltas` first: they were meant for another reader."""
        self._ended += deltas

    def reset_trace(self) -> None:
        """Start an empty trace. Raises `RuntimeError` while requests are open."""
        self.core.reset_trace()

    def _turn(self) -> Progress:
        try:
            return self.core.step()
        except BaseException:
            self._ended += self._close(self.core.take_finished())
            raise

    def _token(self, event: TokenEvent, progress: Progress, ends: bool) -> Iterable[Delta]:
        """The delta of one token; a token that ends its request waits for `_close`."""
        request = event.request
        entry = self._open[request.number]
        entry.pending.append(event.token)
        is_stop_token = ends and request.finish_reason is FinishReason.STOP
        text = entry.stream.push(event.token) if entry.stream and not is_stop_token else ""
        assert progress.result is not None
        logprobs = progress.result.logprobs.get(request.number)
        yield self._delta(entry, text, logprobs)
        if entry.stream and entry.stream.stopped and not ends:
            yield from self._close(self.core.finish(request, FinishReason.STOP))

    def _close(self, finished: Iterable[Request]) -> list[Delta]:
        return [self._last(self._open.pop(request.number)) for request in finished]

    def _last(self, entry: _Open) -> Delta:
        request = entry.request
        text = entry.stream.finish() if entry.stream else ""
        if entry.stream and entry.stream.stopped:
            self.core.finish(request, FinishReason.STOP)  # found with the last token it could have
        return self._delta(entry, text, None)._replace(
            finish_reason=request.finish_reason, error=request.error
        )

    def _delta(self, entry: _Open, text: str, logprobs: TokenLogprobs | None) -> Delta:
        tokens, entry.pending = entry.pending, []
        return Delta(entry.request.id, text, tokens, None, None, logprobs)

    def _encode(self, prompt: str | Sequence[int]) -> Sequence[int]:
        if not isinstance(prompt, str):
            return prompt
        if self.tokenizer is None:
            raise RequestRefused(
                "The prompt is text, but this model has no tokenizer; pass token ids instead."
            )
        return self.tokenizer.encode(prompt)

    def _name(self) -> str:
        """A name that no open request bears; the caller may have used one like it."""
        self._named += 1
        name = f"request-{self._named}"
        return self._name() if self.scheduler.is_open(name) else name
