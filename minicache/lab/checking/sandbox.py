"""Run the judge on a file in a fresh process, and read what it found, however that ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from minicache.lab.checking.judge import IMPORT_FACTOR, State
from minicache.lab.checking.outcome import CaseResult, Fault, Outcome, Verdict
from minicache.lab.course import Exercise

STARTUP_SECONDS = 120.0
"""A cold start of Python and torch on a slow disk."""
MOST_CASES = 30
LINES_SHOWN = 10


class Run(NamedTuple):
    """What is left of a judge's process."""

    status: int
    """Exit status; negative: the signal that ended it."""
    lines: list[dict[str, Any]]
    """The JSON lines it wrote."""
    stuck: str
    """The stack where it did not finish, or nothing."""
    printed: str
    errors: str


def examine(item: Exercise, source: str) -> Outcome:
    """Test `source` as a file of its own in a fresh process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        candidate = folder / f"{item.name}.py"
        candidate.write_text(source, "utf-8")
        run = _run(item, candidate, folder)
        return _outcome(item, source, str(candidate), run)


def _run(item: Exercise, candidate: Path, folder: Path) -> Run:
    files = {name: folder / f"{name}.txt" for name in ("results", "stuck", "printed", "errors")}
    command = [
        sys.executable, "-m", "minicache.lab.checking.judge",
        item.name, str(candidate), str(files["results"]), str(files["stuck"]), str(item.seconds),
    ]  # fmt: skip
    limit = STARTUP_SECONDS + (IMPORT_FACTOR + MOST_CASES) * item.seconds
    with open(files["printed"], "wb") as printed, open(files["errors"], "wb") as errors:
        status = _wait(command, limit, printed, errors)
    texts = {name: _text(path) for name, path in files.items()}
    lines = [json.loads(line) for line in texts["results"].splitlines() if line.endswith("}")]
    return Run(status, lines, texts["stuck"], texts["printed"], texts["errors"])


def _wait(command: list[str], limit: float, printed: Any, errors: Any) -> int:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=errors,
            timeout=limit, env=environment, check=False,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        return -9


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.exists() else ""


def _outcome(item: Exercise, source: str, candidate: str, run: Run) -> Outcome:
    last = run.lines[-1] if run.lines else {}
    state = State(last.get("state", State.IMPORTING))
    done = [line["case"] for line in run.lines if line["state"] == State.DONE.value]
    cases = tuple(CaseResult.from_json(case) for case in done)
    if state is State.BROKEN:
        found = Outcome(item.name, Verdict.BROKEN, sentence=last["sentence"], where=last["where"])
    elif run.status == 0:
        good = all(case.fault is None for case in cases)
        found = Outcome(item.name, Verdict.PASSED if good else Verdict.FAILED, cases)
    else:
        fault, sentence = _death(item, run, state)
        where = _stuck_line(run.stuck, source, candidate)
        found = Outcome(item.name, Verdict.BROKEN, sentence=sentence, where=where)
        if state is State.STARTED:
            died = CaseResult.from_json(last["case"])
            died = replace(died, fault=fault, sentence=sentence, where=where)
            left = _not_run(run, len(cases) + 1)
            found = Outcome(item.name, Verdict.FAILED, (*cases, died, *left))
    return replace(found, printed=_last_lines(run.printed))


def _not_run(run: Run, number: int) -> list[CaseResult]:
    """The cases behind the first `number`, which the process did not live to see."""
    return [CaseResult(name, fault=Fault.NOT_RUN) for name in run.lines[0]["cases"][number:]]


def _death(item: Exercise, run: Run, state: State) -> tuple[Fault, str]:
    """Why the process ended before the last case."""
    if run.stuck:
        limit = item.seconds * (IMPORT_FACTOR if state is State.IMPORTING else 1)
        return Fault.TIME, f"It did not finish within {limit:g} s: is a loop endless?"
    if run.status == -9:
        return Fault.MEMORY, "The system ended the process: it used too much memory or time."
    if run.status < 0:
        return Fault.CRASH, f"Python itself died: {signal.Signals(-run.status).name}."
    last = run.errors.strip().splitlines() or ["it gave no reason"]
    return Fault.CRASH, f"The process ended with status {run.status}: {last[-1]}"


def _stuck_line(stack: str, source: str, candidate: str) -> str:
    """The innermost line of the candidate in a faulthandler stack (innermost comes first)."""
    match = re.search(re.escape(f'File "{candidate}", line ') + r"(\d+)", stack)
    if not match:
        return ""
    number = int(match[1])
    return f"line {number} of your cell: {source.splitlines()[number - 1].strip()}"


def _last_lines(text: str) -> str:
    """The last lines of what was printed, with the number of lines left out before them."""
    lines = [line[:200] for line in text.rstrip().splitlines()]
    if len(lines) > LINES_SHOWN:
        lines = [f"… {len(lines) - LINES_SHOWN:,} lines before", *lines[-LINES_SHOWN:]]
    return "\n".join(lines)
