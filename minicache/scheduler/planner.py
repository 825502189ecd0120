"""Filling a step: decodes, chunks of prompts, newcomers; and what happens when pages run out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minicache.page_pool import PagePool
from minicache.plan import PlanItem
from minicache.policy import Work
from minicache.request import FinishReason, Request
from minicache.scheduler.draft import Draft
from minicache.scheduler.roster import Roster

_new_item: Callable[[tuple[int, int, int, int, bool, Sequence[int]]], PlanItem] = partial(
    tuple.__new__, PlanItem
)
"""`PlanItem` from its fields, in half the time: every decode of every step is made by it."""


class Planner:
    """Puts work into a `Draft`, and takes pages for it.

    A decode may have its input token still in flight: then it is planned by position alone.
    """

    def __init__(self, pool: PagePool, roster: Roster, margin: int) -> None:
        """`margin`: pages that admission leaves free while anybody runs."""
        self.pool = pool
        self.roster = roster
        self.table = roster.table
        self.margin = margin
        self._refused: tuple[Request, int] | None = None
        """Who was refused a seat for lack of pages, and how many were to be had then."""
        self._starved: dict[int, Request] = {}
        """By number: who runs and waits for pages that are coming. They are not for newcomers."""

    def fill(self, draft: Draft, work: Work, now: float) -> None:
        """Plan as much work of the given kinds as budget, rows and pages allow."""
        if Work.DECODE in work:
            self._decodes(draft, now)
        if Work.PREFILL in work:
            self._chunks(draft, now)
        if Work.ADMIT in work or Work.ADMIT_ALL in work:
            self._newcomers(draft, Work.ADMIT_ALL in work, now)

    def prompts_stored(self) -> None:
        """There are new pages to share: who was refused may fit now."""
        self._refused = None

    def _decodes(self, draft: Draft, now: float) -> None:
        """One token for everybody who lacks just one and may get another: all but prompts.

        With steps in flight the input token may not be known yet; the item then carries none.
        """
        add = draft.decodes.append
        for request in tuple(self.roster.running.values()):
            start, tokens = request.num_scheduled, request.tokens
            stop, known = start + 1, len(tokens)
            if stop < known or stop >= request.max_total_tokens:
                continue
            if start >= request.capacity and not self._hold(request, stop, draft, now):
                continue
            request.num_scheduled = stop
            inputs = (tokens[start],) if start < known else ()
            add(_new_item((request.number, request.row, start, stop, True, inputs)))

    def _chunks(self, draft: Draft, now: float) -> None:
        """The next chunks of those who were let in earlier, in order of admission."""
        for request in tuple(self.roster.prefilling.values()):
            if not draft.room(1):
                return
            self._chunk(request, draft, now)

    def _chunk(self, request: Request, draft: Draft, now: float) -> None:
        """As much of one prompt as the step has room for. Its last chunk samples the next token."""
        start, length = request.num_scheduled, len(request.tokens)
        stop = start + draft.room(length - start)
        if stop == start or not self._hold(request, stop, draft, now):
            return
        samples = stop == length
        tokens = request.tokens[start:stop]
        draft.add_chunk(PlanItem(request.number, request.row, start, stop, samples, tokens))
        request.num_scheduled = stop
        if length - stop <= 1:
            self.roster.prefilling.pop(request.number, None)

    def _newcomers(self, draft: Draft, ahead: bool, now: float) -> None:
        """Let waiting requests in, in the queue's order, until one does not fit.

        With `ahead`, also those whose tokens must wait for a later step.
        """
        if self._anybody_starves():
            return
        while self.table.has_row and (ahead or draft.room(1)):
            request = self.roster.order.peek()
            if request is None:
                return
            if self.table.outgrown_by(len(request.tokens)):
                self.roster.end(request, FinishReason.KV_CAPACITY, now)
            elif not self._let_in(request, draft, ahead, now):
                return

    def _let_in(self, request: Request, draft: Draft, ahead: bool, now: float) -> bool:
        """Seat one request and plan its first chunk, or change nothing and return False."""
        pages = self._claim(request)
        if pages is None:
            return False
        if not ahead and not draft.room(len(request.tokens) - len(pages) * self.table.page_size):
            self.pool.free(pages)
            return False
        self.roster.seat(request, pages, now)
        draft.admit(request)
        self._chunk(request, draft, now)
        return True

    def _claim(self, request: Request) -> list[int] | None:
        """Hold the cached pages that `request` begins with, if the rest of it fits too; else None.

        The whole known sequence must fit into what is free and not promised to others. Who was
        refused is not looked at again until there are more pages, or new ones to share.
        """
        busy = bool(self.roster.running)
        spoken_for = self.roster.num_promised + (self.margin if busy else 0)
        available = self.pool.num_free - spoken_for
        if busy and self._refused is not None:
            refused, were_available = self._refused
            if refused is request and available <= were_available:
                return None
        pages = self.pool.share(request.tokens, request.page_hashes, request.salt)
        rest = self.table.pages_for(len(request.tokens)) - len(pages)
        if rest <= self.pool.num_free - spoken_for:
            return pages
        self.pool.free(pages)
        self._refused = (request, available)
        return None

    def _hold(self, request: Request, stop: int, draft: Draft, now: float) -> bool:
        """See that `request` has pages for its first `stop` tokens. False: not in this step."""
        if request.row < 0:
            return False  # it was preempted while this step was planned
        count = self.table.pages_for(stop) - len(request.pages)
        if count <= 0:
            return True
        if count > self.pool.num_free and not self._make_room(request, count, draft, now):
            return False
        draft.add_pages(request, self.table.grow(request, count))
        self._starved.pop(request.number, None)
        return True

    def _make_room(self, request: Request, count: int, draft: Draft, now: float) -> bool:
        """Preempt until `count` pages are free, but nobody while enough are coming.

        False if they are only coming, if `request` itself had to go, or if no pool of this size
        can hold it: then it ends with what it has, once nothing of it is in flight.
        """
        if len(request.pages) + count > self.pool.num_pages:
            if request.num_scheduled == request.num_computed:
                self.roster.end(request, FinishReason.KV_CAPACITY, now)
            return False
        while count > self.pool.num_free:
            if count <= self.pool.num_free + self.table.num_coming:
                self._starved[request.number] = request
                return False
            victim = self.roster.order.victim(tuple(self.roster.running.values()))
            victim.num_scheduled -= draft.drop(victim)
            self.roster.preempt(victim, now)
            if victim is request:
                return False
        return True

    def _anybody_starves(self) -> bool:
        """Whether somebody who runs still waits for pages. Who has left since does not."""
        for request in tuple(self._starved.values()):
            if request.row < 0:
                del self._starved[request.number]
        return bool(self._starved)
