"""The lessons in JupyterLab, in a real browser: they run to the end, pictures obey the keyboard.

Needs Debian's `chromium` and `chromium-driver`, and `pip install selenium`; skipped where they are
missing. `MINICACHE_SCREENSHOTS=folder` keeps a picture of the widget in both themes.
"""

import os
import shutil
import time
from pathlib import Path

import jupyter_browser
import pytest
from jupyter_browser import Browser, jupyterlab

from minicache.lab.course import LESSONS
from minicache.models import local_folder

ROOT = Path(__file__).parent.parent
STEMS = [lesson.stem for lesson in LESSONS]
THEMES = ("JupyterLab Light", "JupyterLab Dark")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.model,
    pytest.mark.skipif(bool(jupyter_browser.missing()), reason=jupyter_browser.missing()),
    pytest.mark.skipif(local_folder("smollm2-135m") is None, reason="needs the model: make model"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("browser")
    for folder in ("lessons", "solutions"):
        shutil.copytree(ROOT / folder, scratch / "course" / folder)
    shutil.copy(ROOT / "GLOSSARY.md", scratch / "course")
    with jupyterlab(scratch / "course", scratch) as address:
        window = Browser(address, scratch / "profile")
        yield window
        window.close()


@pytest.fixture
def pictures(tmp_path) -> Path:
    return Path(os.environ.get("MINICACHE_SCREENSHOTS", tmp_path))


def failures(cells: list[dict]) -> list[str]:
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return [o["evalue"] for o in outputs if o["output_type"] == "error"]


@pytest.mark.parametrize("stem", STEMS)
def test_run_all_on_an_untouched_lesson_reaches_the_last_cell(browser, stem):
    browser.open(f"lessons/{stem}.ipynb")
    cells = browser.run_all(seconds=240)
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert failures(cells) == []
    assert browser.complaints() == []


def test_the_timeline_obeys_the_keyboard_in_both_themes(browser, pictures):
    """Each control works with keys alone: the picture changes, and Reset brings it back."""
    browser.open("solutions/00_start_here.ipynb")
    cells = browser.run_all(seconds=240)
    number = next(i for i, cell in enumerate(cells) if "baseline=" in cell["source"])
    browser.go_to(number)
    first = browser.picture()
    for control, keys in (
        (".widget-inline-hbox input[type=number]", ["ARROW_UP", "ENTER"]),
        ("[role=slider], .noUi-handle", ["ARROW_RIGHT"]),
        ("button[title='One step back']", ["SPACE"]),
        ("button[title='One step on']", ["SPACE"]),
        (".widget-toggle-buttons button:not(.mod-active)", ["SPACE"]),
    ):
        before = browser.picture()
        browser.press(control, keys)
        browser.changed(before, control)
    browser.press("button[title='Back to the first view']", ["SPACE"])
    jupyter_browser.wait(lambda: browser.picture() == first, 10, "Reset does not bring it back")
    assert browser.complaints() == []
    for theme in THEMES:
        browser.theme(theme)
        browser.go_to(number)
        time.sleep(0.5)
        ink, paper = browser.colours()
        assert contrast(ink, paper) > 7, theme
        browser.screenshot(pictures / f"timeline-{theme.split()[1].lower()}.png")


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2 between two CSS colours, `rgb(r, g, b)`."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
