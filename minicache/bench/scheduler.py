"""What a step costs in Python: scheduler and page pool alone, with an executor that takes no time.

    python -m minicache.bench.scheduler

Two situations, both with prompts of 4,096 tokens in the queue. *Waiting*: every row is taken by a
decode. *Streaming*: there is one more row, through which the prompts pass in chunks of 256 tokens.
A step is `schedule` and `update`, timed in processor time, so that other programs count little.

The limit is for decodes with prompts waiting. What streaming adds to it is the work on a chunk:
16 pages taken, entered, hashed and, as the pool fills with cached text, 16 others evicted.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import mean, median
from time import thread_time
from typing import NamedTuple

from minicache.page_pool import PagePool
from minicache.plan import StepPlan, StepResult
from minicache.request import Request, SamplingParams
from minicache.scheduler import Scheduler, SchedulerConfig

PROMPT = 4096
CHUNK = 256


class Cost(NamedTuple):
    """Microseconds a step, over the steps of one run."""

    running: int
    streaming: bool
    """Whether prompts stream through beside the decodes."""
    depth: int
    """Steps in flight."""
    median: float
    mean: float
    worst: float

    @property
    def limit(self) -> float:
        """The project's bar for the median: 25 µs, and 1 µs for each running request."""
        return 25.0 + self.running


def measure(running: int, *, streaming: bool, depth: int = 1, steps: int = 400) -> Cost:
    """Time `steps` steps with `running` decodes, after a warm-up of one prompt's length."""
    scheduler = busy_scheduler(running, streaming, depth, steps)
    times = [seconds * 1e6 for seconds in turn(scheduler, depth, steps)]
    return Cost(running, streaming, depth, median(times), mean(times), max(times))


def busy_scheduler(running: int, streaming: bool, depth: int, steps: int) -> Scheduler:
    """A scheduler whose decodes are under way and last for longer than `steps`."""
    warm_up = PROMPT // CHUNK
    lifetime = steps + 2 * warm_up + 64
    prompts = (steps + warm_up) * CHUNK // PROMPT + 2
    page_size = 16
    pages = (running * (lifetime + page_size) + 2 * PROMPT) // page_size + 2 * running
    config = SchedulerConfig(
        max_num_seqs=running + streaming,
        max_num_batched_tokens=running + CHUNK,
        max_model_len=max(2 * PROMPT, 2 * lifetime),
        max_in_flight=depth,
    )
    scheduler = Scheduler(PagePool(pages, page_size), config)
    for index in range(running):
        prompt = [index] * (1 + index % page_size)
        params = SamplingParams(max_tokens=lifetime, ignore_eos=True)
        scheduler.submit(Request(f"decode-{index}", prompt, params), 0.0)
    for index in range(prompts):
        prompt = [running + index] * PROMPT
        scheduler.submit(Request(f"prompt-{index}", prompt, SamplingParams(max_tokens=1)), 0.0)
    for _ in turn(scheduler, depth, warm_up):
        pass
    return scheduler


def turn(scheduler: Scheduler, depth: int, steps: int) -> Iterator[float]:
    """Run steps and yield the seconds that each spent in `schedule` and `update`."""
    in_flight: deque[StepPlan] = deque()
    for _ in range(steps):
        begin = thread_time()
        while len(in_flight) < depth and (plan := scheduler.schedule(0.0)) is not None:
            in_flight.append(plan)
        planned = thread_time()
        plan = in_flight.popleft()
        result = _result(plan)
        collected = thread_time()
        scheduler.update(plan, result)
        yield planned - begin + thread_time() - collected
    while in_flight:
        plan = in_flight.popleft()
        scheduler.update(plan, _result(plan))


def _result(plan: StepPlan) -> StepResult:
    tokens = [1 for item in plan.items if item.samples]
    return StepResult(plan.step, tokens, 0.0, 0.0, {}, {})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table; the exit code is 1 when decodes alone cost more than the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--running", type=int, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args(arguments)
    print("running  prompts    depth  median µs  limit µs  mean µs  worst µs")
    good = True
    for running in options.running:
        for streaming in (False, True):
            for depth in (1, 2):
                cost = measure(running, streaming=streaming, depth=depth, steps=options.steps)
                good = good and (streaming or cost.median <= cost.limit)
                print(
                    f"{cost.running:7d}  {'streaming' if streaming else 'waiting':9s}  {depth:5d}  "
                    f"{cost.median:9.1f}  {cost.limit:8.1f}  {cost.mean:7.1f}  {cost.worst:8.1f}"
                )
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
