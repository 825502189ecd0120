"""What lessons call beside checks: predictions, hints, progress, library, environment, plots."""

import json
import subprocess
import sys
from inspect import isfunction
from itertools import count

import pytest
import torch

from minicache import lab
from minicache.attention import naive_attention
from minicache.lab import library, plots
from minicache.lab.checking.describe import describe, number
from minicache.lab.checking.outcome import CaseResult, Fault, Outcome, Verdict
from minicache.lab.course import LESSONS, Exercise
from minicache.lab.machine import Ceilings, ceilings
from minicache.lab.show import Shown


@pytest.fixture(autouse=True)
def mycache(tmp_path, monkeypatch):
    folder = tmp_path / "mycache"
    monkeypatch.setenv("MINICACHE_MYCACHE", str(folder))
    return folder


def fresh(*lines: str, cwd=None, env=None) -> str:
    """The output of a new Python process."""
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd, env=env)
    return done.stdout.strip()


# --- start-up -----------------------------------------------------------------------------------


def test_a_check_without_tensors_loads_no_torch():
    loaded = fresh(
        "import sys",
        "from minicache import lab",
        "from minicache.lab.checks import check_source",
        "from minicache.lab.checking.judge import cases_of",
        "cases_of('attention_cost'), cases_of('kv_bytes_per_token')",
        "print('torch' in sys.modules, 'IPython' in sys.modules)",
    )
    assert loaded == "False False"


def test_the_public_names_exist_and_no_others():
    for _ in range(2):  # a module of the same name would take a function's place after its import
        assert all(isfunction(getattr(lab, name)) for name in lab.__all__)
    with pytest.raises(AttributeError, match="nonesuch"):
        lab.nonesuch  # noqa: B018


# --- predictions --------------------------------------------------------------------------------


def test_a_prediction_is_kept_and_shown_beside_the_measured_number(mycache):
    said = lab.predict("gap", guess=2, unit="s", question="How long?")
    assert said.text == "How long? You say: 2 s."
    shown = lab.reveal("gap", measured=3.2, formula=3.1).text.splitlines()
    assert shown == [
        "How long?",
        "  you said            2 s  measured: 1.6 times as much",
        "  the formula says  3.1 s  within 5 %",
        "  measured          3.2 s",
    ]
    assert json.loads((mycache / "predictions.json").read_text())["gap"]["guess"] == 2


def test_no_number_is_fine():
    assert "in place of the three dots, in ms" in lab.predict("x", guess=..., unit="ms").text
    assert "nothing yet" in lab.reveal("x", measured=3.0).text


def test_a_prediction_survives_a_restart():
    lab.predict("x", guess=5, unit="ms")
    text = fresh("from minicache import lab", "print(lab.reveal('x', measured=1))")
    assert "5 ms  measured: 5.0 times less" in text


def test_what_was_not_predicted_cannot_be_revealed():
    with pytest.raises(LookupError, match="run the prediction's cell first"):
        lab.reveal("nonesuch", measured=1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.0, "1,230 ms"), (0.012345, "0.0123 ms"), (99.99, "100 ms"), (0.0, "0 ms")],
)
def test_amounts_have_three_digits_and_a_unit(value, text):
    lab.predict("x", guess=..., unit="ms")
    assert text in lab.reveal("x", measured=value).text


# --- hints and progress -------------------------------------------------------------------------


def test_hints_go_from_a_nudge_to_nearly_the_answer():
    first = lab.hint("causal_mask")
    assert first.text.startswith("Hint 1 of 2:") and 'lab.hint("causal_mask", 2)' in first.text
    assert "The last hint" in lab.hint("causal_mask", 2).text
    with pytest.raises(ValueError, match="hints 1 to 2, not 3"):
        lab.hint("causal_mask", 3)
    with pytest.raises(LookupError, match="No exercise is called"):
        lab.hint("nonesuch")


def test_progress_counts_what_is_in_the_library(mycache):
    assert "0 of 7 exercises" in lab.progress().text
    library.keep("causal_mask", "def causal_mask(): ...")
    shown = lab.progress()
    assert "✓ causal_mask" in shown.text and "· naive_attention" in shown.text
    assert "1 of 7 exercises" in shown.text and "01 Naive attention: 1 of 6" in shown.html
    for lesson in LESSONS:
        for item in lesson.exercises:
            library.keep(item.name, "x = 1")
    assert lab.progress().text.endswith("All done.")


def test_the_command_line_shows_the_same_progress(mycache):
    from typer.testing import CliRunner

    from minicache.cli.app import app

    library.keep("causal_mask", "def causal_mask(): ...")
    assert lab.progress().text in CliRunner().invoke(app, ["progress"]).output


def test_a_difficulty_off_the_scale_is_refused():
    with pytest.raises(ValueError, match="scale is 1 to 5"):
        Exercise("x", "x", 1, 6, "m:x", "", ())


# --- the library --------------------------------------------------------------------------------


def test_use_takes_the_learners_version_or_the_reference(mycache):
    assert lab.use("naive_attention") is naive_attention
    library.keep("naive_attention", "def naive_attention(q, k, v, scale):\n    return 'mine'\n")
    assert lab.use("naive_attention")(0, 0, 0, 1.0) == "mine"
    assert library.find("naive_attention").source == "yours, from mycache/naive_attention.py"


def test_a_library_file_that_no_longer_loads_is_replaced_by_the_reference_and_named(mycache):
    library.keep("naive_attention", "import nonesuch\n")
    found = library.find("naive_attention")
    assert found.function is naive_attention
    assert "no longer loads" in found.source and "nonesuch" in found.source


def test_reset_moves_an_exercise_aside_and_numbers_go_up(mycache):
    assert "nothing to reset" in lab.reset("causal_mask")
    for _ in range(2):
        library.keep("causal_mask", "def causal_mask(): ...")
        said = lab.reset("causal_mask")
    assert "mycache/earlier/causal_mask.2.py" in said
    assert library.written() == [] and len(list((mycache / "earlier").iterdir())) == 2
    with pytest.raises(LookupError):
        lab.reset("nonesuch")


def test_the_library_lies_beside_the_lessons(tmp_path, monkeypatch):
    monkeypatch.delenv("MINICACHE_MYCACHE")
    (tmp_path / "lessons").mkdir()
    for place in (tmp_path, tmp_path / "lessons"):
        monkeypatch.chdir(place)
        assert library.folder() == tmp_path / "mycache"
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert library.folder() == elsewhere / "mycache"


# --- environment and ceilings -------------------------------------------------------------------


def test_the_environment_says_what_kind_of_machine_this_is():
    text = lab.environment().text
    for label in ("machine", "precision", "Triton kernels", "timings", "model", "your library"):
        assert label in text
    assert "CPU" in text or "GPU" in text
    assert "0 of 7 exercises" in text


def test_ceilings_are_the_best_of_what_was_measured():
    ticks = count()  # every run takes one second of this clock
    found = ceilings(lambda: float(next(ticks)), size=8, repeats=3)
    assert found.flops_per_s == 2 * 8**3
    assert found.bytes_per_s == 2 * 64 * 2**20
    assert "measured here" in found.source


def test_ceilings_turn_counts_into_time():
    machine = Ceilings(flops_per_s=100e9, bytes_per_s=10e9, source="made up")
    assert machine.flops_per_byte == 10
    assert machine.seconds(50e9, 5e9) == pytest.approx(1.0)
    assert str(machine) == "100 GFLOP/s, 10.0 GB/s, so 10 FLOPs a byte (made up)"


# --- showing ------------------------------------------------------------------------------------


def test_a_plot_is_the_same_svg_every_time_and_has_a_name():
    def draw() -> plots.Picture:
        plot = plots.axes()
        plot.plot([1, 2, 4], [1, 20, 300], "--", label="formula")
        plots.length_axis(plot, [1, 2, 2048], "tokens")
        plots.log_axis(plot, "ms")
        return plots.picture(plot, "It grows & grows.", "measured here: a test")

    first = draw()
    assert first == draw()
    assert 'role="img" aria-label="It grows &amp; grows."' in first.svg
    for text in ("2k", "200", "formula", "measured here: a test"):
        assert f">{text}<" in first.svg


def test_shown_is_html_in_a_notebook_and_text_at_a_prompt():
    piece = Shown("<b>x</b>", "x")
    assert repr(piece) == "x"
    assert piece._repr_mimebundle_() == {"text/html": "<b>x</b>", "text/plain": "x"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor([[1.0, 22.5], [-3.0, 4.0]]), "float32 (2, 2)\n[[   1  22.5]\n [  -3     4]]"),
        (torch.zeros(0, 3), "float32 (0, 3), empty"),
        (torch.tensor([True, False]), "bool (2,)\n[ True  False]"),
        (torch.tensor(2.5), "float32 ()\n2.5"),
        ([1, 2], "[1, 2]"),
        (1 / 3, "0.33333"),
    ],
)
def test_values_are_described_for_reading(value, text):
    assert describe(value) == text


def test_a_large_tensor_is_described_by_its_range():
    values = torch.arange(100.0)
    values[3] = float("nan")
    assert describe(values) == "float32 (100,), 1 of 100 are inf or NaN, from 0 to 99"
    assert number(float("inf")) == "inf"


def test_outcomes_travel_as_json():
    case = CaseResult("n", "a", Fault.SHAPE, "s", (("q", "1"),), "e", "g", "w", 3)
    assert CaseResult.from_json(json.loads(json.dumps(case.to_json()))) == case
    assert Outcome("n", Verdict.FAILED, (case,)).smallest_failure is case


# --- the black boxes ----------------------------------------------------------------------------


@pytest.mark.model
def test_the_forgetful_model_speaks_through_any_attention_as_the_engine_does():
    """Greedy text through the learner's attention, the reference and the engine is the same."""
    from mutants.naive_attention import DIFFERENT

    from minicache.request import SamplingParams

    library.keep("naive_attention", DIFFERENT)
    model = lab.model(lab.use("naive_attention"))
    prompt = model.tokenizer.chat([{"role": "user", "content": "Why is the sky blue?"}])
    generate = lab.use("greedy_generate")
    mine = generate(model, prompt, 8)
    assert mine == generate(model.with_attention(naive_attention), prompt, 8)
    with lab.engine(dtype="float32") as llm:
        assert llm.generate([prompt], SamplingParams(max_tokens=8))[0].token_ids == mine


@pytest.mark.model
def test_the_document_is_real_and_as_long_as_asked():
    model = lab.model()
    text = lab.document(model.tokenizer, 200)
    assert 150 < len(model.tokenizer.encode(text)) <= 200 and "request" in text
