"""The lessons as texts: their rhythm and endings, links that lead somewhere, units, words."""

import re
from pathlib import Path

import pytest

from minicache.lab.course import LESSONS, Exercise, Lesson
from minicache.lab.notebooks import read_cells

ROOT = Path(__file__).parent.parent
PARAMETERS = [pytest.param(lesson, id=lesson.stem) for lesson in LESSONS]
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
HYPE = re.compile(
    r"\b(amazing|awesome|blazing|simply|just works|easy peasy|obviously|trivial)\b", re.I
)


def markdown(lesson: Lesson) -> str:
    source = read_cells(ROOT / "solutions" / f"{lesson.stem}.py")
    return "\n\n".join(cell.source for cell in source if cell.kind == "markdown")


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_the_header_says_what_when_and_what_not(lesson):
    header = markdown(lesson).split("\n## ")[0]
    assert header.startswith(f"# {lesson.number:02d} · {lesson.title}\n")
    assert "After this lesson you can" in header and "128k-token request" in header
    for row in (f"| Time | {lesson.minutes} minutes", "| You need |", "| Not covered |"):
        assert row in header


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_exercises_fit_into_the_lesson(lesson):
    assert sum(e.minutes for e in lesson.exercises) <= 0.85 * lesson.minutes
    if lesson.number > 0:
        assert 3 <= len(lesson.exercises) <= 6


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_each_exercise_has_its_heading_and_its_first_hint_collapsed(lesson):
    text = markdown(lesson)
    plain = " ".join(text.split())
    for exercise in lesson.exercises:
        assert heading(exercise) in text
        hint = " ".join(exercise.hints[0].split())
        assert re.search(r"<summary>A hint</summary>[^<]*" + re.escape(hint), plain), exercise.name


def heading(exercise: Exercise) -> str:
    return (
        f"· `{exercise.name}` · {exercise.minutes} minutes · difficulty {exercise.difficulty} of 5"
    )


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_the_lesson_keeps_the_rhythm_and_its_ending(lesson):
    text = markdown(lesson)
    assert text.count("**Predict.") + text.count("**Predict**") >= 2
    assert "**Look.**" in text and "**Explain in two sentences**" in text
    for section in ("## Incident: ", "## Three questions", "## What real engines do differently"):
        assert section in text
    questions = text.split("## Three questions")[1].split("\n## ")[0]
    assert questions.count("<details><summary>") == questions.count("</details>") == 3
    assert text.count("<details>") == text.count("</details>")
    assert re.search(r"github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", text), "cite the incident"


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_links_end_somewhere(lesson):
    for image, text, target in LINK.findall(markdown(lesson)):
        assert text.strip(), f"a link or picture without words: {target}"
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            # Links work from both folders: a lesson's neighbours have the same names in either.
            for folder in ("solutions", "lessons"):
                assert (ROOT / folder / path).resolve().exists(), target
            if anchor:
                assert anchor in anchors((ROOT / "solutions" / path).resolve()), target
        assert not image or len(text) > 10, f"the picture {target} needs a sentence as its text"


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_the_tone_is_plain(lesson):
    assert not HYPE.findall(markdown(lesson))
    assert "!" not in re.sub(r"`[^`]*`|!\[", "", markdown(lesson))


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_numbers_have_units_that_are_set_apart(lesson):
    """`15 ms`, not `15ms`; `14 %`, not `14%`. Token counts such as 128k and code are exempt."""
    prose = re.sub(r"`[^`]*`|\$[^$]*\$|\([^)]*\)", "", markdown(lesson))
    assert not re.findall(r"\b\d[\d.,]*(?:ms|s|GB|MB|TB|FLOPs?|%)(?![\w-])", prose)


@pytest.mark.parametrize("lesson", PARAMETERS)
def test_block_means_thread_block_only(lesson):
    prose = re.sub(r"`[^`]*`|head-of-line[ -]blocking", "", markdown(lesson), flags=re.I)
    for line in prose.splitlines():
        assert not re.search(r"\b(KV|cache|memory) blocks?\b", line, re.I), line
