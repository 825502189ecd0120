"""The judge: runs in a process of its own, imports one candidate file, runs the cases on it.

    python -m minicache.lab.checking.judge EXERCISE CANDIDATE RESULTS TRACE SECONDS

Writes a JSON line to RESULTS before and after each case, so that a crash loses nothing. A case that
runs too long ends the process (status 1) with the stack of the endless code in TRACE.
"""

from __future__ import annotations

import copy
import faulthandler
import json
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TextIO

from minicache.lab.cases.case import Case, Inputs
from minicache.lab.checking.compare import Difference, difference
from minicache.lab.checking.describe import describe, size
from minicache.lab.checking.limits import GIB, MEMORY_LIMIT, is_out_of_memory, limit_memory
from minicache.lab.checking.outcome import CaseResult, Fault
from minicache.lab.course import Exercise, exercise

IMPORT_FACTOR = 4
"""Importing the candidate may take this many times as long as a case: it may import more."""


class State(Enum):
    """What a line of RESULTS says."""

    IMPORTING = "importing"
    BROKEN = "broken"
    STARTED = "started"
    DONE = "done"


def cases_of(name: str) -> tuple[Case, ...]:
    """The cases of an exercise. Imports what they need, often torch."""
    cases: tuple[Case, ...] = import_module(f"minicache.lab.cases.{name}").CASES
    return cases


def load(path: Path, name: str) -> ModuleType:
    """Import one file as a module called `name`. Raises whatever the file raises."""
    spec = spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up here
    spec.loader.exec_module(module)
    return module


def resolve(reference: str) -> Any:
    """The object that `module:name` names; the name may have dots."""
    module, name = reference.split(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def judge(item: Exercise, function: Any, file: str) -> list[CaseResult]:
    """Run every case on `function`, defined in `file`, in this process and without limits."""
    right = resolve(item.reference)
    return [run_case(case, function, right, file) for case in cases_of(item.name)]


def run_case(case: Case, function: Any, right: Any, file: str) -> CaseResult:
    """Run one case. `right` gives the answer where the case has none of its own."""
    inputs = case.inputs()
    before = copy.deepcopy(inputs)
    answer = case.call(case.expected or right, copy.deepcopy(inputs))
    try:
        got = case.call(function, inputs)
    except BaseException as error:  # a learner's sys.exit() must not end the judge
        found, text = _explain(error, file), ""
    else:
        found = difference(answer, got, case.rtol, case.atol) or _changed(before, inputs)
        text = describe(got)
    if found is None:
        return CaseResult(case.name)
    return replace(
        unfinished(case, before),
        fault=found.fault,
        sentence=found.sentence,
        expected=describe(answer),
        got=text,
        where=found.where,
    )


def unfinished(case: Case, inputs: Inputs) -> CaseResult:
    """What is known of a case before it has run: all there is to show if the process dies in it."""
    texts = tuple((name, describe(value)) for name, value in inputs.items())
    numbers = sum(size(value) for value in inputs.values())
    return CaseResult(case.name, case.about, Fault.NOT_RUN, inputs=texts, size=numbers)


def _changed(before: Inputs, after: Inputs) -> Difference | None:
    for name, value in before.items():
        if difference(value, after[name], 0.0, 0.0):
            sentence = f"The result is right, but it changed its input {name}: work on a copy."
            return Difference(Fault.CHANGED_INPUT, sentence)
    return None


def _explain(error: BaseException, file: str) -> Difference:
    where = _line_of(error.__traceback__, file)
    if is_out_of_memory(error):
        limit = f"{MEMORY_LIMIT // GIB} GiB"
        return Difference(
            Fault.MEMORY, f"It asked for more than {limit}, all that a check may use.", where
        )
    sentence = f"{type(error).__name__}: {error}"
    if isinstance(error, NameError):
        sentence += (
            ". Your cell becomes a file of its own: it must hold every import and helper it uses."
        )
    return Difference(Fault.EXCEPTION, sentence, where)


def _line_of(trace: TracebackType | None, file: str) -> str:
    """The innermost line of the learner's own file in a traceback."""
    own = [frame for frame in traceback.extract_tb(trace) if frame.filename == file]
    return f"line {own[-1].lineno} of your cell: {own[-1].line}" if own else ""


class Judge:
    """One candidate file before its judge: imports it, runs the cases, writes down what comes."""

    def __init__(self, item: Exercise, candidate: Path, out: TextIO, stacks: TextIO) -> None:
        """`out` takes JSON lines; `stacks` the stack of code that does not end in time."""
        self.item = item
        self.candidate = candidate
        self.out = out
        self.stacks = stacks

    def run(self) -> None:
        """Import the candidate and run every case. Ends the process where a limit is passed."""
        function = self._import()
        if function is None:
            return
        right = resolve(self.item.reference)
        for case in cases_of(self.item.name):
            self._write(State.STARTED, case=unfinished(case, case.inputs()).to_json())
            with self._clock(self.item.seconds):
                result = run_case(case, function, right, str(self.candidate))
            self._write(State.DONE, case=result.to_json())

    def _import(self) -> Any:
        """The learner's function, or None after writing down why there is none."""
        self._write(State.IMPORTING, cases=[case.name for case in cases_of(self.item.name)])
        with self._clock(self.item.seconds * IMPORT_FACTOR):
            try:
                return getattr(load(self.candidate, "candidate"), self.item.name)
            except BaseException as error:
                found = _explain(error, str(self.candidate))
                self._write(State.BROKEN, sentence=found.sentence, where=found.where)
                return None

    @contextmanager
    def _clock(self, seconds: float) -> Generator[None]:
        """End the process, with a stack, if the body takes longer."""
        faulthandler.dump_traceback_later(seconds, exit=True, file=self.stacks)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _write(self, state: State, **fields: Any) -> None:
        print(json.dumps({"state": state.value, **fields}), file=self.out, flush=True)


def main(name: str, candidate: str, results: str, trace: str, seconds: str) -> int:
    """Judge one file; returns the exit status."""
    item = replace(exercise(name), seconds=float(seconds))
    cases_of(name)  # imports torch now, before the clock and the memory limit start
    limit_memory(MEMORY_LIMIT)
    with open(results, "w", encoding="utf-8") as out, open(trace, "w", encoding="utf-8") as stacks:
        Judge(item, Path(candidate), out, stacks).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
