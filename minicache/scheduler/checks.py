"""What is refused, and in which words: requests without a chance, results that do not fit."""

from __future__ import annotations

from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult
from minicache.request import Request, RequestRefused
from minicache.scheduler.config import SchedulerConfig

TOKEN_IDS = 2**31
"""Token ids are kept in 32 bits, by the prefix cache and on the device."""


def check_request(request: Request, config: SchedulerConfig, pool: PagePool) -> None:
    """Raise `RequestRefused` if the request can never be served under these limits."""
    length, context = request.num_prompt_tokens, config.max_model_len
    stored = pool.num_pages * pool.page_size
    if request.number >= 0:
        raise RequestRefused(
            f"The request {request.id!r} was submitted before; make a new one to ask again."
        )
    if not length:
        raise RequestRefused("The prompt is empty; give at least one token.")
    if length + 1 > context:
        raise RequestRefused(
            f"The prompt has {length} tokens, but with one output token the context holds "
            f"{context}; shorten the prompt to {context - 1} tokens or raise max_model_len."
        )
    if length + 1 > stored:
        raise RequestRefused(
            f"The prompt has {length} tokens, but with one output token the page pool stores "
            f"{stored} ({pool.num_pages} pages of {pool.page_size}); shorten the prompt or give "
            "the pool more pages."
        )
    for token in (min(request.tokens), max(request.tokens)):
        if not 0 <= token < TOKEN_IDS:
            raise RequestRefused(
                f"The prompt holds the token id {token}, but ids lie in [0, {TOKEN_IDS}); "
                "give ids of the model's vocabulary."
            )


def check_result(plan: StepPlan, result: StepResult, oldest: int | None) -> None:
    """Raise `ValueError` unless `result` is that of the oldest step in flight, and complete."""
    if not plan.step == result.step == oldest:
        raise ValueError(
            f"Got the result of step {result.step} for step {plan.step}, but the oldest in flight "
            f"is {oldest}; collect steps in the order they were planned in."
        )
    chunks = plan.items[plan.num_decodes :]
    wanted = plan.num_decodes + sum(chunk.samples for chunk in chunks)
    if len(result.tokens) != wanted:
        raise ValueError(
            f"Step {plan.step} samples {wanted} tokens, but its result has {len(result.tokens)}; "
            "give one for each item that samples, failed ones too."
        )
