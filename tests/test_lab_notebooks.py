"""The notebook builder: one source, two notebooks, the same bytes on every run."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from minicache.lab.notebooks import SourceError, blanked, build, pairs, problems, read_cells, solved
from minicache.lab.notebooks.run import tidy_outputs

SOURCE = '''\
# %% [markdown]
# # A lesson
# Twice two.

# %%
def double(x: int) -> int:
    """Twice `x`."""
    ### BEGIN SOLUTION multiply by two
    y = 2 * x
    return y
    ### END SOLUTION

# %%
# NBVAL_CHECK_OUTPUT
print("checked")

# %%
lab_guess = dict(guess=3.5, unit="ms")

# %%
print("checked")
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "solutions").mkdir()
    (tmp_path / "lessons").mkdir()
    (tmp_path / "solutions" / "03_double.py").write_text(SOURCE)
    return tmp_path


def build_all(root: Path, run: str) -> list[str]:
    return [line for pair in pairs(root) for line in build(pair, run)]


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


def test_the_lesson_is_blank_and_the_solution_is_whole(root):
    build_all(root, "never")
    lesson, solution = (cells(root / d / "03_double.ipynb") for d in ("lessons", "solutions"))
    assert 'raise NotImplementedError("multiply by two")' in source(lesson[1])
    assert "2 * x" not in source(lesson[1])
    assert source(solution[1]).endswith("    y = 2 * x\n    return y")
    assert "guess=..." in source(lesson[3]) and "guess=3.5" in source(solution[3])
    assert not any("SOLUTION" in source(cell) for cell in lesson + solution)


def test_a_blank_keeps_the_indent_and_is_valid_python(root):
    text = blanked(
        'if a:\n        ### BEGIN SOLUTION say "why"\n        b\n        ### END SOLUTION\nc'
    )
    assert text == "if a:\n        raise NotImplementedError(\"say 'why'\")\nc"
    compile(text, "cell", "exec")


def test_building_twice_gives_the_same_bytes(root):
    build_all(root, "never")
    paths = [root / d / "03_double.ipynb" for d in ("lessons", "solutions")]
    first = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    build_all(root, "never")
    assert [path.read_bytes() for path in paths] == first
    assert build_all(root, "never") == []


def test_cell_ids_are_stable_and_differ_for_repeated_cells(root):
    build_all(root, "never")
    ids = [cell["id"] for cell in cells(root / "lessons" / "03_double.ipynb")]
    assert len(set(ids)) == len(ids)
    assert ids[4] == ids[2] + "-2"  # the same code twice
    text = SOURCE.replace("Twice two.", "Twice three.")
    (root / "solutions" / "03_double.py").write_text(text)
    build_all(root, "never")
    later = [cell["id"] for cell in cells(root / "lessons" / "03_double.ipynb")]
    assert later[1:] == ids[1:] and later[0] != ids[0]


def test_output_checks_are_tags_and_only_in_the_solution(root):
    build_all(root, "never")
    lesson, solution = (cells(root / d / "03_double.ipynb") for d in ("lessons", "solutions"))
    assert solution[2]["metadata"]["tags"] == ["nbval-check-output"]
    assert lesson[2]["metadata"] == {}
    assert source(solution[2]) == 'print("checked")'


def test_the_solution_is_run_and_kept_until_its_cells_change(root):
    assert build_all(root, "changed") == [
        "03_double.ipynb: lesson written",
        "03_double.ipynb: solution run",
    ]
    path = root / "solutions" / "03_double.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert notebook.cells[2].outputs[0].text == "checked\n"
    assert "widgets" not in notebook.metadata and notebook.metadata.language_info == {
        "name": "python"
    }
    stamp = path.stat().st_mtime_ns
    assert build_all(root, "changed") == [] and path.stat().st_mtime_ns == stamp
    assert problems(root) == []
    build_all(root, "always")
    assert problems(root) == []


def test_a_failing_cell_stops_the_build_and_leaves_the_old_file(root):
    build_all(root, "never")
    before = (root / "solutions" / "03_double.ipynb").read_bytes()
    path = root / "solutions" / "03_double.py"
    path.write_text(SOURCE + "\n# %%\n1 / 0\n")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        build_all(root, "changed")
    assert (root / "solutions" / "03_double.ipynb").read_bytes() == before


def test_check_says_what_is_out_of_step(root):
    assert len(problems(root)) == 2
    build_all(root, "changed")
    assert problems(root) == []
    (root / "lessons" / "03_double.ipynb").write_text("{}")
    assert problems(root) == ["lessons/03_double.ipynb is not what 03_double.py makes."]
    build_all(root, "changed")
    (root / "lessons" / "99_gone.ipynb").write_text("{}")
    assert problems(root) == ["lessons/99_gone.ipynb has no source in solutions/; delete it."]


def test_check_notices_a_solution_that_was_not_run(root):
    build_all(root, "never")
    assert problems(root) == ["solutions/03_double.ipynb was not run from top to bottom."]


def test_the_command_line(root):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "minicache.lab.notebooks", *words]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    stale = run("check")
    assert stale.returncode == 1 and "make notebooks" in stale.stderr
    assert run("build", "--only", "03").returncode == 0
    assert run("check").returncode == 0
    assert "up to date" in run("build").stdout
    assert run("build", "--only", "07").returncode == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("### BEGIN SOLUTION x\n1", "never closed"),
        ("### END SOLUTION", "no partner"),
        ("### BEGIN SOLUTION x\n### BEGIN SOLUTION y\n### END SOLUTION", "no partner"),
        ("### BEGIN SOLUTION\n1\n### END SOLUTION", "needs a hint"),
    ],
)
def test_markers_that_do_not_pair_are_refused(tmp_path, body, message):
    path = tmp_path / "01_x.py"
    path.write_text(f"# %%\n{body}\n")
    with pytest.raises(SourceError, match=message):
        read_cells(path)


def test_solved_and_blanked_leave_other_cells_alone():
    text = "x = 1\n\nprint(x)"
    assert solved(text) == blanked(text) == text


def test_outputs_are_tidied_for_readers_without_a_kernel():
    cell = nbformat.v4.new_code_cell("x")
    view = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "1"},
        "image/svg+xml": "<svg/>",
    }
    stream = nbformat.v4.new_output
    cell.outputs = [
        nbformat.v4.new_output("display_data", data=view),
        stream("stream", name="stdout", text="a"),
        stream("stream", name="stdout", text="b\n"),
        stream("stream", name="stderr", text="c"),
    ]
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"x": 1}})
    tidy = tidy_outputs(notebook)
    assert "widgets" not in tidy.metadata
    outputs = tidy.cells[0].outputs
    assert dict(outputs[0].data) == {"image/svg+xml": "<svg/>"}
    assert [o.text for o in outputs[1:]] == ["ab\n", "c"]
