"""What may run together in a step, and in which order people queue.

A *batching policy* says which kinds of work the next step may hold; the scheduler fills it under
the token budget. A *queue order* says who is admitted next, and who gives way when pages run out.
Both are small classes, given to the scheduler as arguments: write your own and pass it.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from enum import Flag, auto
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from minicache.request import Request


class Work(Flag):
    """Kinds of work that a step may hold."""

    NONE = 0
    DECODE = auto()
    """One token for every running request that lacks exactly one."""
    PREFILL = auto()
    """The next chunks of prompts that have been admitted."""
    ADMIT = auto()
    """Waiting requests, as many as get a token in this step."""
    ADMIT_ALL = auto()
    """Waiting requests, as many as have a row and pages, even if their tokens come later."""


class Situation(NamedTuple):
    """What a batching policy may look at."""

    now: float
    """Seconds on the engine's clock."""
    running: int
    waiting: int
    in_flight: int
    """Steps submitted and not collected."""
    last: Work
    """What the step before held: DECODE, PREFILL, both, or NONE at the start."""


class BatchingPolicy(Protocol):
    """Decides what may run together."""

    def attempts(self, situation: Situation) -> Sequence[Work]:
        """Kinds of step to try, best first: the first that finds something to do is the step."""
        ...


class Static:
    """A batch is admitted only when nothing runs, and then runs to its end.

    Those who arrive later wait for the slowest of the batch. What serving looked like before
    continuous batching (Orca, Yu et al. 2022).
    """

    def attempts(self, situation: Situation) -> Sequence[Work]:
        """A new batch when the engine is empty; else the batch's prompts, then its decodes."""
        if situation.running:
            return (Work.PREFILL, Work.DECODE)
        return () if situation.in_flight else (Work.ADMIT_ALL,)


class PrefillFirst:
    """Prompts go before decodes and never with them: short first waits, long gaps for the others.

    nano-vllm does this, and so did vLLM before chunked prefill.
    """

    def attempts(self, situation: Situation) -> Sequence[Work]:
        """Prompts while there are any, else decodes."""
        return (Work.PREFILL | Work.ADMIT, Work.DECODE)


class Alternating:
    """A step of prompts, a step of decodes, by turns, when there are both."""

    def attempts(self, situation: Situation) -> Sequence[Work]:
        """The kind that the step before was not."""
        prompts = Work.PREFILL | Work.ADMIT
        if Work.PREFILL in situation.last:
            return (Work.DECODE, prompts)
        return (prompts, Work.DECODE)


class Mixed:
    """Stall-free: every ready decode is in every step, and prompts take what is left of the budget.

    Sarathi-Serve (Agrawal et al. 2024); vLLM and TensorRT-LLM with chunked prefill.
    """

    def attempts(self, situation: Situation) -> Sequence[Work]:
        """Everything at once."""
        return (Work.DECODE | Work.PREFILL | Work.ADMIT,)


class QueueOrder(Protocol):
    """Keeps those who wait: new requests, and preempted ones, which wait again.

    An order that depends on service received (fair share) reads it off the requests it let in.
    """

    def push(self, request: Request) -> None:
        """A request begins to wait."""
        ...

    def peek(self) -> Request | None:
        """Who is next, or None when nobody waits."""
        ...

    def remove(self, request: Request) -> None:
        """A request waits no longer: it was admitted, or it was cancelled."""
        ...

    def victim(self, running: Sequence[Request]) -> Request:
        """Who gives its pages back when they run out. `running` is in order of admission."""
        ...


class Fcfs:
    """First come, first served. Who was admitted last gives way first; priorities are ignored."""

    def __init__(self) -> None:
        self._waiting: dict[int, Request] = {}
        self._heap: list[tuple[int, int]] = []
        """Rank and number of everybody in `_waiting`, and of some who have left the middle."""

    def rank(self, request: Request) -> int:
        """Smaller is served first; among equals, who came first."""
        return 0

    def push(self, request: Request) -> None:
        """A preempted request gets its old place back, since its number is older."""
        self._waiting[request.number] = request
        heapq.heappush(self._heap, (self.rank(request), request.number))

    def peek(self) -> Request | None:
        """Who came first. Entries of those who left are dropped when they reach the front."""
        while self._heap and self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)
        return self._waiting[self._heap[0][1]] if self._heap else None

    def remove(self, request: Request) -> None:
        """Constant time, wherever in the queue it is."""
        self._waiting.pop(request.number, None)

    def victim(self, running: Sequence[Request]) -> Request:
        """Who was admitted last: it has the least to lose, and the oldest are sure to finish."""
        return running[-1]


class Priority(Fcfs):
    """A lower `Request.priority` goes first, then first come, first served."""

    def rank(self, request: Request) -> int:
        """The caller's priority."""
        return request.priority

    def victim(self, running: Sequence[Request]) -> Request:
        """Of those with the lowest priority (the highest number), who was admitted last."""
        return max(reversed(running), key=lambda request: request.priority)


BATCHING: Final[Mapping[str, type[BatchingPolicy]]] = MappingProxyType(
    {
        "static": Static,
        "prefill-first": PrefillFirst,
        "alternating": Alternating,
        "mixed": Mixed,
    }
)
"""Batching policies by the name that the command line takes."""

ORDERS: Final[Mapping[str, type[QueueOrder]]] = MappingProxyType(
    {"fcfs": Fcfs, "priority": Priority}
)
"""Queue orders by the name that the command line takes."""
