"""A step while it is being planned: what is in it, and what is left of its budget."""

from __future__ import annotations

from minicache.plan import Admission, PageEntry, PlanItem, StepPlan
from minicache.request import Request


class Draft:
    """A `StepPlan` in the making. Items can be taken out again when their request is preempted."""

    def __init__(self, step: int, budget: int, chunked: bool) -> None:
        """`chunked`: whether a prompt may be cut to what is left of the budget."""
        self.step = step
        self.chunked = chunked
        self.decodes: list[PlanItem] = []
        self.chunks: list[PlanItem] = []
        self.admissions: list[Admission] = []
        self.entries: list[PageEntry] = []
        self._budget = budget
        self._chunk_tokens = 0

    @property
    def budget(self) -> int:
        """The token budget, lifted by a prompt that was longer and must not be cut."""
        return max(self._budget, self.num_tokens)

    @property
    def num_tokens(self) -> int:
        """Tokens scheduled so far: one a decode, and those of the chunks."""
        return len(self.decodes) + self._chunk_tokens

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run."""
        return not self.decodes and not self.chunks

    def room(self, gap: int) -> int:
        """How many of the next `gap` tokens of one prompt this step takes.

        As many as are left of the budget; or, where prompts are not cut, all or none: all for the
        first prompt of the step.
        """
        left = self._budget - self.num_tokens
        if self.chunked:
            return min(gap, left)
        return gap if gap <= left or not self.chunks else 0

    def add_chunk(self, item: PlanItem) -> None:
        """Put a chunk in, of as many tokens as there was `room` for."""
        self.chunks.append(item)
        self._chunk_tokens += item.stop - item.start

    def admit(self, request: Request) -> None:
        """Announce the new owner of a row, and the pages it shares from the start."""
        self.admissions.append(Admission(request.row, request.number, request.params))
        self.add_pages(request, request.pages)

    def add_pages(self, request: Request, pages: list[int]) -> None:
        """Announce the newest `pages` of a request, at the end of its row."""
        for column, page in enumerate(pages, len(request.pages) - len(pages)):
            self.entries.append(PageEntry(request.row, column, page))

    def drop(self, request: Request) -> int:
        """Take a request's part out again; its tokens return to the budget. Returns how many."""
        number, row, before = request.number, request.row, self.num_tokens
        self.decodes[:] = [item for item in self.decodes if item.number != number]
        self.chunks[:] = [item for item in self.chunks if item.number != number]
        self._chunk_tokens = sum(item.stop - item.start for item in self.chunks)
        self.admissions = [admission for admission in self.admissions if admission.row != row]
        self.entries = [entry for entry in self.entries if entry.row != row]
        return before - self.num_tokens

    def plan(self) -> StepPlan:
        """The finished step: decodes, then chunks, each in order of admission."""
        return StepPlan(
            step=self.step,
            items=self.decodes + self.chunks,
            num_decodes=len(self.decodes),
            num_tokens=self.num_tokens,
            budget=self.budget,
            admissions=self.admissions,
            entries=self.entries,
        )
