"""The limits a scheduler works under, checked once."""

from __future__ import annotations

from dataclasses import dataclass

from minicache.arguments import check_number, check_whole


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits of a step and of a request. Raises `ValueError` when they contradict each other."""

    max_num_seqs: int
    """Rows of the page table: requests that run at once."""
    max_num_batched_tokens: int
    """The token budget of a step."""
    max_model_len: int
    """Tokens of the context, outputs included."""
    max_in_flight: int = 1
    """Steps planned ahead of their results: 1 waits for each step, 2 plans the next meanwhile."""
    chunked_prefill: bool = True
    """Whether a prompt may be cut. When not, it runs whole in one step: the first prompt of a step
    lifts that step's budget as far as it needs, a further one must fit in what is left."""
    watermark: float = 0.0
    """Fraction of the pool that admission leaves free for the growth of those who run already."""
    eos_token_ids: frozenset[int] = frozenset()
    """Tokens that end every request which does not ignore them."""

    def __post_init__(self) -> None:
        """Check every limit once."""
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "max_in_flight"):
            check_whole(name, getattr(self, name))
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but it must be at least 1.")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens}, but a step must hold a "
                f"token of each of max_num_seqs = {self.max_num_seqs} requests; raise the first or "
                "lower the second."
            )
        check_number("watermark", self.watermark)
        if not 0.0 <= self.watermark < 1.0:
            raise ValueError(
                f"watermark is {self.watermark}, but it is a fraction of the pool in [0, 1)."
            )

    @property
    def max_step_tokens(self) -> int:
        """The most tokens that any step can hold: what an executor sizes its buffers by."""
        if self.chunked_prefill:
            return self.max_num_batched_tokens
        return max(self.max_num_batched_tokens, self.max_num_seqs - 1 + self.max_model_len)
