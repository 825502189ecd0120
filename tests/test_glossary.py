"""The glossary's promise: one entry a word, in order, and every link to it has an end."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = (ROOT / "GLOSSARY.md").read_text("utf-8")
TITLES = re.findall(r"^### (.+)$", GLOSSARY, re.MULTILINE)
LINK = re.compile(r"GLOSSARY\.md#([\w-]+)")
READ = [*ROOT.glob("*.md"), *ROOT.glob("solutions/*.py"), *ROOT.glob("minicache/**/*.py")]
LINKING = [path for path in READ if LINK.search(path.read_text("utf-8"))]


def anchor(title: str) -> str:
    """The anchor that code hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


ANCHORS = [anchor(title) for title in TITLES]


def test_entries_are_in_order_and_have_their_own_anchors():
    assert len(ANCHORS) > 80
    assert sorted(TITLES, key=str.lower) == TITLES
    assert len(set(ANCHORS)) == len(ANCHORS)


def test_links_inside_the_glossary_have_an_end():
    links = re.findall(r"\]\(#([^)]+)\)", GLOSSARY)
    assert links
    assert set(links) <= set(ANCHORS)


@pytest.mark.parametrize("path", LINKING, ids=lambda path: path.name)
def test_links_into_the_glossary_have_an_end(path):
    assert set(LINK.findall(path.read_text("utf-8"))) <= set(ANCHORS)


def test_entries_are_short_and_say_something():
    for entry in GLOSSARY.split("\n### ")[1:]:
        title, body = entry.split("\n", 1)
        assert body.strip().endswith("."), title
        assert 20 < len(body) < 600, title
