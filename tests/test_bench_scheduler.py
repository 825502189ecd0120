"""The scheduler's benchmark measures what it says, and prints it."""

from __future__ import annotations

import pytest

from minicache.bench import scheduler as bench
from minicache.scheduler import EventKind


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_short_run_keeps_every_row_busy(streaming, depth):
    scheduler = bench.busy_scheduler(4, streaming, depth, steps=20)
    scheduler.take_events()
    costs = list(bench.turn(scheduler, depth, 20))
    assert len(costs) == 20 and all(cost > 0 for cost in costs)
    assert scheduler.num_running >= 4 and scheduler.num_waiting >= 1
    passed = [event for event in scheduler.take_events() if event.kind is EventKind.FINISHED]
    assert {event.request.id[:6] for event in passed} == ({"prompt"} if streaming else set())


def test_it_prints_a_row_for_each_situation(capsys):
    code = bench.main(["--running", "2", "--steps", "10"])
    lines = capsys.readouterr().out.splitlines()
    assert code in (0, 1) and len(lines) == 5
    assert lines[1].split()[:3] == ["2", "waiting", "1"]
