"""`lab.check`: the whole cell becomes a file, a fresh process tests it, and the learner is told."""

from dataclasses import replace

import pytest
from IPython.core.interactiveshell import InteractiveShell

from minicache.lab import check, library
from minicache.lab.checking.cell import CellNotFound, blank_line, standalone
from minicache.lab.checking.outcome import Fault, Outcome, Verdict
from minicache.lab.checking.report import report
from minicache.lab.checking.sandbox import examine
from minicache.lab.checks import check_source
from minicache.lab.course import exercise
from minicache.lab.reference.attention_cost import attention_cost as reference

RIGHT = """\
def times(*factors):
    product = 1
    for factor in factors:
        product = product * factor
    return product


def attention_cost(num_queries, num_keys, num_heads, num_kv_heads, head_dim, bytes_per_element=4):
    pairs = times(num_heads, num_queries, num_keys)
    numbers = times(2, num_queries, num_heads, head_dim)
    numbers += times(2, num_keys, num_kv_heads, head_dim)
    return times(4, pairs, head_dim), (numbers + 4 * pairs) * bytes_per_element
"""
COST = """\
def attention_cost(num_queries, num_keys, num_heads, num_kv_heads, head_dim, bytes_per_element=4):
    {body}
"""


@pytest.fixture(autouse=True)
def mycache(tmp_path, monkeypatch):
    folder = tmp_path / "mycache"
    monkeypatch.setenv("MINICACHE_MYCACHE", str(folder))
    return folder


@pytest.fixture
def shell():
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def softmax(body: str, head: str = "import torch\n") -> Outcome:
    return check_source(
        exercise("stable_softmax"), f"{head}def stable_softmax(scores):\n    {body}\n"
    )


def cost(body: str, seconds: float = 5.0) -> Outcome:
    """No torch is loaded for this exercise, so these checks start in a blink."""
    item = replace(exercise("attention_cost"), seconds=seconds)
    return check_source(item, COST.format(body=body))


# --- a cell that passes -------------------------------------------------------------------------


def test_a_right_cell_passes_and_is_kept_whole(mycache):
    outcome = check_source(exercise("attention_cost"), RIGHT)
    assert outcome.passed and outcome.num_passed == len(outcome.cases) == 8
    kept = (mycache / "attention_cost.py").read_text()
    assert kept.startswith(RIGHT) and "lesson 01" in kept
    assert "mycache/attention_cost.py" in outcome.notes[0]
    assert library.find("attention_cost").source == "yours, from mycache/attention_cost.py"


def test_a_kept_file_works_without_the_notebook(mycache):
    check_source(exercise("attention_cost"), RIGHT)
    names: dict = {}
    exec((mycache / "attention_cost.py").read_text(), names)
    assert callable(names["attention_cost"])


def test_checking_the_same_cell_again_changes_nothing(mycache):
    first = check_source(exercise("attention_cost"), RIGHT)
    stamp = (mycache / "attention_cost.py").stat().st_mtime_ns
    assert check_source(exercise("attention_cost"), RIGHT) == first
    assert (mycache / "attention_cost.py").stat().st_mtime_ns == stamp
    assert not (mycache / library.EARLIER).exists()


def test_a_different_version_that_passes_never_erases_the_earlier_one(mycache):
    check_source(exercise("attention_cost"), RIGHT)
    other = RIGHT.replace("product = product * factor", "product *= factor")
    outcome = check_source(exercise("attention_cost"), other)
    assert "earlier/attention_cost.1.py" in outcome.notes[1]
    assert (mycache / "earlier" / "attention_cost.1.py").read_text().startswith(RIGHT)
    assert (mycache / "attention_cost.py").read_text().startswith(other)


def test_a_cell_that_fails_is_not_kept(mycache):
    assert not cost("return 4, 16").passed
    assert library.written() == [] and not mycache.exists()


# --- mistakes, named as what they are -----------------------------------------------------------


def only_fault(outcome: Outcome) -> Fault | None:
    assert outcome.verdict is Verdict.FAILED
    worst = outcome.smallest_failure
    assert worst is not None
    return worst.fault


def test_a_missing_return_is_named():
    outcome = softmax("scores.exp()")
    assert only_fault(outcome) is Fault.TYPE
    assert "is the `return` missing?" in outcome.smallest_failure.sentence


def test_a_shape_mistake_is_named():
    outcome = softmax("return torch.softmax(scores, -1).transpose(-1, -2)")
    worst = outcome.smallest_failure
    assert worst.fault is Fault.SHAPE and worst.name == "two equal scores"
    assert "(2, 1)" in worst.sentence and "transpose" in worst.sentence


def test_a_dtype_mistake_is_named():
    outcome = softmax("return torch.softmax(scores.double(), -1)")
    assert only_fault(outcome) is Fault.DTYPE
    assert "float64" in outcome.smallest_failure.sentence


def test_wrong_values_are_shown_where_they_differ():
    outcome = softmax("return scores.exp() / scores.exp().sum(-1, keepdim=True)")
    worst = outcome.smallest_failure
    assert worst.name == "large scores" and worst.fault is Fault.VALUES
    assert worst.inputs == (("scores", "float32 (1, 2)\n[[100  101]]"),)
    assert "0.26894  0.73106" in worst.expected and "nan" in worst.got
    assert worst.where.startswith("at [0, 0]: expected 0.26894, got nan")
    assert "NaN" in worst.sentence


def test_one_common_factor_is_pointed_out():
    outcome = softmax("return 2 * torch.softmax(scores, -1)")
    factors = [case.sentence for case in outcome.cases if case.name == "three scores"]
    assert "2 times the right value" in factors[0]


def test_a_changed_input_is_named():
    outcome = softmax(
        "scores -= scores.amax(-1, keepdim=True)\n    return torch.softmax(scores, -1)"
    )
    assert only_fault(outcome) is Fault.CHANGED_INPUT
    assert "scores" in outcome.smallest_failure.sentence


def test_an_exception_shows_the_learners_line():
    outcome = cost("return 1 // 0")
    assert only_fault(outcome) is Fault.EXCEPTION
    worst = outcome.smallest_failure
    assert worst.sentence.startswith("ZeroDivisionError")
    assert worst.where == "line 2 of your cell: return 1 // 0"


def test_a_name_from_another_cell_is_explained():
    outcome = cost("return helper(num_queries)")
    assert "helper" in outcome.smallest_failure.sentence
    assert "every import and helper" in outcome.smallest_failure.sentence


def test_a_cell_that_cannot_be_imported_is_explained():
    outcome = check_source(
        exercise("attention_cost"), "import nonesuch\n" + COST.format(body="return 1")
    )
    assert outcome.verdict is Verdict.BROKEN
    assert "nonesuch" in outcome.sentence and outcome.where.startswith("line 1 of your cell")


# --- code that does not end well ----------------------------------------------------------------


def test_an_endless_loop_is_stopped_and_found():
    outcome = cost("while num_keys > 1: pass\n    return 4, 16", seconds=0.5)
    assert [case.fault for case in outcome.cases] == [None, Fault.TIME] + 6 * [Fault.NOT_RUN]
    stuck = outcome.smallest_failure
    assert stuck.name == "one query, eight keys" and ("num_keys", "8") in stuck.inputs
    assert stuck.where == "line 2 of your cell: while num_keys > 1: pass"
    assert "endless" in stuck.sentence


def test_an_endless_loop_at_import_is_stopped_and_found():
    item = replace(exercise("attention_cost"), seconds=0.2)
    source = COST.format(body="return 1") + "\nx = [n for n in iter(int, 1)]\n"
    outcome = check_source(item, source)
    assert outcome.verdict is Verdict.BROKEN and "endless" in outcome.sentence
    assert outcome.where.startswith("line 4 of your cell")


def test_too_much_memory_in_torch_is_named():
    outcome = softmax("return torch.ones(10**10)")
    assert only_fault(outcome) is Fault.MEMORY
    assert "GiB" in outcome.smallest_failure.sentence


def test_too_much_memory_in_python_is_named():
    outcome = cost("return [0] * 10**10")
    assert only_fault(outcome) is Fault.MEMORY


def test_leaving_python_is_explained():
    assert only_fault(cost("raise SystemExit(3)")) is Fault.EXCEPTION
    outcome = cost("import os; os._exit(3)")
    assert only_fault(outcome) is Fault.CRASH and "status 3" in outcome.smallest_failure.sentence


def test_a_crash_of_python_itself_is_named():
    outcome = cost("import ctypes; ctypes.string_at(0)")
    assert only_fault(outcome) is Fault.CRASH
    assert "SIGSEGV" in outcome.smallest_failure.sentence


def test_what_the_code_printed_is_shown_and_cut():
    outcome = cost("print('here', num_keys); return 1")
    assert outcome.printed.splitlines()[-1] == "here 512"
    long = cost("print('x\\n' * 100); return 1")
    assert long.printed.startswith("… ") and len(long.printed.splitlines()) == 11


def test_an_endless_print_does_not_fill_the_disk():
    outcome = cost("while True: print('x' * 10000)", seconds=20)
    assert only_fault(outcome) is Fault.EXCEPTION
    assert "File too large" in outcome.smallest_failure.sentence


# --- the blank ----------------------------------------------------------------------------------


def test_a_blank_needs_no_process(monkeypatch):
    monkeypatch.setattr("minicache.lab.checks.examine", None)
    outcome = cost('x = 1\n    raise NotImplementedError("count the pairs")')
    assert outcome.verdict is Verdict.NOT_WRITTEN
    assert 'raise NotImplementedError("count the pairs")' in outcome.sentence


def test_a_blank_in_another_function_does_not_count():
    source = "def other():\n    raise NotImplementedError\n\ndef mine():\n    return 1\n"
    assert blank_line(source, "mine") is None
    assert blank_line(source, "other") == "raise NotImplementedError"


# --- the cell -----------------------------------------------------------------------------------


def test_what_defines_nothing_becomes_a_comment_on_the_same_line():
    source = "import math\nx = 1\nprint(\n  x\n)\ndef f():\n    return x\nf = lab.check(f)\n"
    lines = standalone(source, "f").splitlines()
    assert lines == [
        "import math",
        "x = 1",
        "# left out: print(",
        "# left out:   x",
        "# left out: )",
        "def f():",
        "    return x",
        "# left out: f = lab.check(f)",
    ]


def test_a_function_inside_something_else_is_refused():
    with pytest.raises(CellNotFound, match="left edge"):
        standalone("if True:\n    def f():\n        return 1\n", "f")


def run(shell: InteractiveShell, source: str):
    result = shell.run_cell(source, store_history=True)
    result.raise_error()
    return result.result


def test_in_ipython_the_whole_cell_comes_along(shell, mycache, capsys):
    run(shell, "from minicache.lab import check")
    run(shell, RIGHT.replace("times", "helper") + "\n%time attention_cost(1, 1, 1, 1, 1)\n")
    mine = run(shell, "attention_cost = check(attention_cost); attention_cost")
    assert mine is shell.user_ns["attention_cost"] and mine is not reference
    kept = (mycache / "attention_cost.py").read_text()
    assert "def helper(*factors):" in kept and "# left out: get_ipython()" in kept
    assert "all 8 cases pass" in capsys.readouterr().out


def test_in_ipython_the_cell_is_the_one_that_made_this_function(shell, mycache):
    """The cell may have run many times, and a later cell may have failed before its definition."""
    run(shell, "from minicache.lab import check")
    run(shell, RIGHT)
    shell.run_cell("1 / 0\ndef attention_cost(*sizes):\n    return 1\n", store_history=True)
    run(shell, "check(attention_cost)")
    assert (mycache / "attention_cost.py").read_text().startswith(RIGHT)


def test_in_ipython_a_blank_hands_on_the_reference(shell, capsys):
    run(shell, "from minicache.lab import check")
    run(shell, 'def attention_cost(*sizes):\n    """Spec."""\n    raise NotImplementedError("x")\n')
    assert run(shell, "check(attention_cost)") is reference
    text = capsys.readouterr().out
    assert "not written yet" in text and "goes on with the reference" in text


def test_a_failing_cell_goes_on_with_the_earlier_version_of_the_learner(shell, mycache):
    run(shell, "from minicache.lab import check")
    check_source(exercise("attention_cost"), RIGHT)
    run(shell, "def attention_cost(*sizes):\n    return 1\n")
    assert run(shell, "check(attention_cost)").__module__ == "mycache_attention_cost"


def test_a_function_without_source_is_explained(capsys):
    names: dict = {}
    exec("def attention_cost(*sizes):\n    return 1\n", names)
    assert check(names["attention_cost"]) is reference
    assert "run it again, then check" in capsys.readouterr().out


def test_an_unknown_name_lists_the_exercises():
    def nonesuch() -> None: ...

    with pytest.raises(LookupError, match="causal_mask"):
        check(nonesuch)


# --- the report ---------------------------------------------------------------------------------


def test_the_report_says_the_same_in_html_and_in_text():
    outcome = softmax("return scores.exp() / scores.exp().sum(-1, keepdim=True)")
    shown = report(outcome)
    for text in ("7 of 10 cases pass", "large scores", "expected", "0.26894", "at [0, 0]"):
        assert text in shown.text and text in shown.html
    assert shown.text.count("✓") == 7 and shown.text.count("✗") == 3
    assert 'aria-label="' in shown.html
    assert set(shown._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_html_in_the_learners_text_is_escaped():
    outcome = cost("raise ValueError('<script>')")
    assert "<script>" not in report(outcome).html and "&lt;script&gt;" in report(outcome).html


def test_the_smallest_failing_case_is_shown():
    outcome = softmax("return torch.zeros_like(scores)")
    assert outcome.smallest_failure.name == "one score"
    assert len([case for case in outcome.cases if case.fault]) == 10


def test_examine_does_not_touch_the_library(mycache):
    assert (
        examine(exercise("attention_cost"), COST.format(body="return 1")).verdict is Verdict.FAILED
    )
    assert not mycache.exists()
