"""Who waits, who runs, who has ended: the one place where a request changes its state."""

from __future__ import annotations

from minicache.page_pool import PagePool
from minicache.policy import QueueOrder
from minicache.request import FinishReason, Request, RequestState
from minicache.scheduler.events import EventKind, SchedulerEvent
from minicache.scheduler.page_table import PageTable


class Roster:
    """Every open request, and what it holds. A request ends exactly once, whoever ends it."""

    def __init__(self, pool: PagePool, num_rows: int, order: QueueOrder) -> None:
        self.order = order
        self.table = PageTable(pool, num_rows)
        self.live: dict[str, Request] = {}
        """By id, in order of submission: all who wait or run."""
        self.running: dict[int, Request] = {}
        """By number, in order of admission: those who hold a row."""
        self.prefilling: dict[int, Request] = {}
        """Those of `running` with more than one known token to go."""
        self.events: list[SchedulerEvent] = []
        self._next_number = 0

    @property
    def num_waiting(self) -> int:
        """Requests in the queue, the preempted among them."""
        return len(self.live) - len(self.running)

    @property
    def num_promised(self) -> int:
        """Pages that prompts which were let in have still to take."""
        table = self.table
        return sum(
            table.pages_for(len(request.tokens)) - len(request.pages)
            for request in self.prefilling.values()
        )

    def enter(self, request: Request) -> None:
        """A new request joins the queue and gets its number."""
        request.number = self._next_number
        self._next_number += 1
        self.order.push(request)  # somebody else's code: if it raises, nobody has come in
        self.live[request.id] = request

    def seat(self, request: Request, pages: list[int], now: float) -> None:
        """A waiting request begins to run. `pages`, held for it, store its first tokens already."""
        self.table.move_in(request, pages)
        self.running[request.number] = request
        request.state = RequestState.RUNNING
        request.num_computed = request.num_scheduled = request.capacity
        if len(request.tokens) - request.num_scheduled > 1:
            self.prefilling[request.number] = request
        if not request.num_preemptions:
            request.num_cached = request.num_computed
        self.order.remove(request)
        self._note(EventKind.ADMITTED, request, now)

    def preempt(self, request: Request, now: float) -> None:
        """A running request gives everything back and waits again; its tokens stay known.

        What steps in flight still bring for it is dropped, and sampled again later. Raises
        `ValueError` if it does not run.
        """
        if request.state is not RequestState.RUNNING:
            raise ValueError(
                f"{request.id!r} is {request.state.value}; only who runs is preempted."
            )
        self._leave(request)
        request.num_computed = request.num_scheduled = 0
        request.num_preemptions += 1
        request.state = RequestState.PREEMPTED
        self.order.push(request)
        self._note(EventKind.PREEMPTED, request, now)

    def end(self, request: Request, reason: FinishReason, now: float) -> None:
        """The only way out, from any state. A request that has ended stays as it is."""
        if request.finished:
            return
        if request.state is RequestState.RUNNING:
            self._leave(request)
        else:
            self.order.remove(request)
        del self.live[request.id]
        request.state = RequestState.FINISHED
        request.finish_reason = reason
        self._note(EventKind.FINISHED, request, now)

    def fail(self, request: Request, error: str, now: float) -> None:
        """End a request with an error."""
        if not request.finished:
            request.error = error
            self.end(request, FinishReason.ERROR, now)

    def _leave(self, request: Request) -> None:
        self.table.move_out(request)
        del self.running[request.number]
        self.prefilling.pop(request.number, None)

    def _note(self, kind: EventKind, request: Request, now: float) -> None:
        self.events.append(SchedulerEvent(kind, request, now))
