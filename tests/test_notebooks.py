"""The notebooks of this repository: in step with their sources, and fit to be read."""

import ast
import json
import re
from pathlib import Path

import pytest

from minicache.lab.course import LESSONS, Lesson
from minicache.lab.notebooks import pairs, problems, read_cells, solved

ROOT = Path(__file__).parent.parent
STEMS = [pair.source.stem for pair in pairs(ROOT)]
CODE_WIDTH = 100
"""Characters that fit JupyterLab's column at 1,280 pixels, beside the file browser."""

ALWAYS = {"minicache.lab", "minicache.viz", "minicache.model_config", "minicache.request"}
"""What a lesson may import from the first one on: black boxes, pictures, plain data."""
WRITTEN_IN = {
    "minicache.attention.naive": 1,
    "minicache.attention.online": 3,
    "minicache.attention.partial": 3,
    "minicache.attention": 4,
    "minicache.kv_cache": 2,
    "minicache.page_pool": 4,
    "minicache.scheduler": 5,
    "minicache.policy": 6,
    "minicache.trace": 5,
    "minicache.cost_model": 6,
    "minicache.kernels": 7,
    "minicache.workload": 10,
    "minicache.metrics": 10,
    "minicache.server": 10,
}
"""The lesson in which learners write their own of a room: until then a lesson may not open it."""


def cells(folder: str, stem: str) -> list[dict]:
    return json.loads((ROOT / folder / f"{stem}.ipynb").read_text("utf-8"))["cells"]


def lesson_of(stem: str) -> Lesson:
    return next(lesson for lesson in LESSONS if lesson.stem == stem)


def code_of(stem: str) -> str:
    """All code of the solution, one cell after the other."""
    source = read_cells(ROOT / "solutions" / f"{stem}.py")
    return "\n".join(solved(cell.source) for cell in source if cell.kind == "code")


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """All calls of `lab.name`."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in found if ast.unparse(call.func) == f"lab.{name}"]


def test_every_lesson_of_the_course_has_a_source():
    assert [lesson.stem for lesson in LESSONS] == STEMS


def test_notebooks_and_sources_are_in_step():
    assert problems(ROOT) == []


@pytest.mark.parametrize("stem", STEMS)
def test_a_lesson_has_no_outputs_and_no_answers(stem):
    for cell in cells("lessons", stem):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert "SOLUTION" not in (ROOT / "lessons" / f"{stem}.ipynb").read_text("utf-8")


@pytest.mark.parametrize("folder", ["solutions", "lessons"])
@pytest.mark.parametrize("stem", STEMS)
def test_no_cell_may_raise_be_skipped_or_hide_a_widget(folder, stem):
    text = (ROOT / folder / f"{stem}.ipynb").read_text("utf-8")
    for banned in ("raises-exception", "nbval-skip", "NBVAL_SKIP", "NBVAL_RAISES", "widget-view"):
        assert banned not in text
    assert "widgets" not in json.loads(text)["metadata"]


@pytest.mark.parametrize("stem", STEMS)
def test_executed_notebooks_hold_no_error_no_warning_and_no_path(stem):
    text = (ROOT / "solutions" / f"{stem}.ipynb").read_text("utf-8")
    outputs = [o for cell in cells("solutions", stem) for o in cell.get("outputs", ())]
    assert outputs and not [o for o in outputs if o["output_type"] == "error"]
    assert not [o for o in outputs if o.get("name") == "stderr"]
    assert str(ROOT) not in text and not re.search(r"/(home|root|tmp|Users)/", text)
    assert not re.search(r"object at 0x[0-9a-f]+", text)


@pytest.mark.parametrize("stem", STEMS)
def test_pictures_are_svg_with_a_sentence_for_those_who_do_not_see_them(stem):
    for cell in cells("solutions", stem):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            assert not [kind for kind in data if kind in ("image/png", "image/jpeg")]
            if "image/svg+xml" in data:
                sentence = "".join(data["text/plain"])
                assert len(sentence) > 20 and sentence.strip().endswith(".")
                assert 'aria-label="' in "".join(data["image/svg+xml"])


@pytest.mark.parametrize("stem", STEMS)
def test_text_that_is_the_same_everywhere_is_checked(stem):
    """Every check's table, and whatever is printed without a timing or a machine's name in it."""
    for cell in cells("solutions", stem):
        source = "".join(cell["source"])
        if "lab.check(" in source:
            assert "nbval-check-output" in cell["metadata"].get("tags", []), source


@pytest.mark.parametrize("stem", STEMS)
def test_code_fits_the_page(stem):
    for line in code_of(stem).splitlines():
        assert len(line) <= CODE_WIDTH, line


@pytest.mark.parametrize("stem", STEMS)
def test_a_lesson_uses_nothing_that_is_written_later(stem):
    number = lesson_of(stem).number
    tree = ast.parse(code_of(stem))
    for module in imported(tree):
        assert when_written(module) <= number, f"lesson {number} imports {module}"
    later = {e.name for lesson in LESSONS if lesson.number > number for e in lesson.exercises}
    used = {ast.literal_eval(call.args[0]) for call in calls(tree, "use")}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not later & (used | names)


def imported(tree: ast.AST) -> list[str]:
    """Modules of this package; `from minicache import lab` is `minicache.lab`."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "minicache"
            found += [f"minicache.{a.name}" for a in node.names] if whole else [node.module]
    return [module for module in found if module.split(".")[0] == "minicache"]


def when_written(module: str) -> int:
    """The lesson from which on a module may be imported."""
    parents = [module.rsplit(".", cut)[0] if cut else module for cut in range(module.count("."))]
    if any(parent in ALWAYS for parent in parents):
        return 0
    known = [WRITTEN_IN[parent] for parent in parents if parent in WRITTEN_IN]
    assert known, f"{module} has no lesson in WRITTEN_IN yet"
    return known[0]


def test_references_of_a_lesson_are_not_from_later_rooms():
    for lesson in LESSONS:
        for exercise in lesson.exercises:
            module = exercise.reference.split(":")[0]
            assert when_written(module) <= lesson.number, exercise.name


@pytest.mark.parametrize("stem", STEMS)
def test_every_exercise_is_checked_once_and_its_result_is_used(stem):
    lines = code_of(stem).splitlines()
    for exercise in lesson_of(stem).exercises:
        assert lines.count(f"{exercise.name} = lab.check({exercise.name})") == 1


@pytest.mark.parametrize("stem", STEMS)
def test_every_prediction_is_revealed_after_it_was_made(stem):
    tree = ast.parse(code_of(stem))
    made = {ast.literal_eval(call.args[0]): call.lineno for call in calls(tree, "predict")}
    shown = {ast.literal_eval(call.args[0]): call.lineno for call in calls(tree, "reveal")}
    assert made and made.keys() == shown.keys()
    assert all(made[name] < shown[name] for name in made)


@pytest.mark.parametrize("stem", STEMS)
def test_the_incident_tells_the_reported_code_from_the_repaired(stem):
    """In the executed notebook; neither is named after the cause."""
    said = {}
    for cell in cells("solutions", stem):
        for output in cell.get("outputs", ()):
            text = "".join(output.get("text", ""))
            match = re.match(r"the (reported|repaired) code \w+ (.*)", text)
            if match:
                said[match[1]] = match[2].split(",")[-1]
    assert said.keys() == {"reported", "repaired"} and said["reported"] != said["repaired"]
