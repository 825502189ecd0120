"""Checks that bite: every exercise's cases reject the mistakes people make and nothing else.

`pytest -s tests/test_lab_mutants.py` prints the kill matrix: a row a mutant, a column a case.
"""

import difflib
from importlib import import_module
from pathlib import Path

import pytest
from mutants.shape import Mutant

from minicache.lab.checking.cell import standalone
from minicache.lab.checking.judge import cases_of, judge, load, resolve
from minicache.lab.checking.outcome import Outcome, Verdict
from minicache.lab.checks import check_source
from minicache.lab.course import LESSONS, Exercise
from minicache.lab.notebooks import blanked, read_cells, solved

ROOT = Path(__file__).parent.parent
EXERCISES = [exercise for lesson in LESSONS for exercise in lesson.exercises]
STEM = {e.name: lesson.stem for lesson in LESSONS for e in lesson.exercises}


def ids(exercise: Exercise) -> str:
    return exercise.name


@pytest.fixture(autouse=True)
def mycache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINICACHE_MYCACHE", str(tmp_path / "mycache"))


def exercise_cell(exercise: Exercise) -> str:
    """The cell of the lesson's source that defines the exercise."""
    cells = read_cells(ROOT / "solutions" / f"{STEM[exercise.name]}.py")
    found = [c.source for c in cells if c.kind == "code" and f"def {exercise.name}(" in c.source]
    assert len(found) == 1, f"{exercise.name} must be defined in exactly one cell"
    return found[0]


def solution(exercise: Exercise) -> str:
    return standalone(solved(exercise_cell(exercise)), exercise.name)


def mutants(exercise: Exercise) -> tuple[Mutant, ...]:
    return import_module(f"mutants.{exercise.name}").MUTANTS


def different(exercise: Exercise) -> str:
    return import_module(f"mutants.{exercise.name}").DIFFERENT


def killers(exercise: Exercise, source: str, folder: Path) -> set[str]:
    """The names of the cases that fail on `source`, judged in this process."""
    file = folder / f"{exercise.name}.py"
    file.write_text(source)
    function = getattr(load(file, f"mutant_of_{exercise.name}"), exercise.name)
    return {result.name for result in judge(exercise, function, str(file)) if result.fault}


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_right_answers_are_accepted(exercise, tmp_path):
    """The reference, the lesson's solution, and one written in another manner."""
    reference = resolve(exercise.reference)
    assert not [r for r in judge(exercise, reference, "") if r.fault]
    assert not killers(exercise, solution(exercise), tmp_path)
    assert not killers(exercise, different(exercise), tmp_path)


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_mutants_are_small_survive_half_the_cases_and_are_all_killed(exercise, tmp_path):
    cases = [case.name for case in cases_of(exercise.name)]
    right = solution(exercise)
    killed = {m.name: killers(exercise, m.apply(right), tmp_path) for m in mutants(exercise)}
    print(f"\n\n{kill_matrix(exercise.name, cases, killed)}")
    assert len(set(cases)) == len(cases) and len(killed) >= 4
    for mutant in mutants(exercise):
        assert 1 <= changed_lines(right, mutant.apply(right)) <= 3, mutant.name
        assert killed[mutant.name], f"no case notices: {mutant.name}"
        assert 2 * len(killed[mutant.name]) <= len(cases), f"too easy: {mutant.name}"
    assert not set.intersection(*killed.values()), "a single case kills them all"


def changed_lines(right: str, wrong: str) -> int:
    """Lines that are gone or changed, or lines that are new, whichever is more."""
    marks = [line[0] for line in difflib.ndiff(right.splitlines(), wrong.splitlines())]
    return max(marks.count("-"), marks.count("+"))


def kill_matrix(name: str, cases: list[str], killed: dict[str, set[str]]) -> str:
    """A row a mutant, a column a case; ✗ where the case notices it."""
    width = max(len(mutant) for mutant in killed)
    head = [f"{name}: which case kills which mutant"]
    head += [f"{' ' * width}  {'│' * i}{i + 1} {case}" for i, case in enumerate(cases)]
    rows = [
        f"{mutant.rjust(width)}  " + "".join("✗" if case in found else "·" for case in cases)
        for mutant, found in killed.items()
    ]
    return "\n".join(head + rows)


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_lab_check_itself_rejects_a_mutant_names_the_case_and_accepts_the_solution(
    exercise, tmp_path
):
    """The whole way, through a file and a fresh process, for the mutant hardest to notice."""
    right = solution(exercise)
    by_deaths = [(len(killers(exercise, m.apply(right), tmp_path)), m) for m in mutants(exercise)]
    hardest = min(by_deaths, key=lambda pair: pair[0])[1]
    outcome: Outcome = check_source(exercise, hardest.apply(right))
    assert outcome.verdict is Verdict.FAILED and outcome.smallest_failure.sentence
    failed = {case.name for case in outcome.cases if case.fault}
    assert failed == killers(exercise, hardest.apply(right), tmp_path)
    assert check_source(exercise, right).passed


@pytest.mark.parametrize("exercise", EXERCISES, ids=ids)
def test_the_blank_is_not_written_yet(exercise):
    blank = standalone(blanked(exercise_cell(exercise)), exercise.name)
    assert check_source(exercise, blank).verdict is Verdict.NOT_WRITTEN
