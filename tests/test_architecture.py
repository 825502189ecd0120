"""The rules of ARCHITECTURE.md that a machine can check."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "minicache"
LIGHT = ["request", "plan", "protocols", "page_pool", "policy", "scheduler", "core", "trace"]
LIGHT += ["metrics", "viz.timeline", "model_config", "engine"]
TOP = {"cli", "demo", "bench", "record", "lab"}


def imported_rooms(file: Path) -> set[str]:
    """The rooms that a file names in its imports, whenever they are executed."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {n.split(".")[1] for n in names if n.startswith("minicache.")}


def rooms() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found.setdefault(room, set()).update(imported_rooms(file) - {room})
    return found


@pytest.mark.parametrize("room", LIGHT)
def test_light_rooms_load_neither_torch_nor_triton(room: str):
    code = f"import sys, minicache.{room}; sys.exit(bool({{'torch', 'triton'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_the_engine_knows_nothing_of_what_stands_on_it():
    for room, imports in rooms().items():
        if room not in TOP | {"viz", "__main__"}:
            assert not imports & (TOP | {"viz"}), f"{room} imports {imports & (TOP | {'viz'})}"
        if room == "viz":
            assert not imports & (TOP | {"llm"}), f"viz imports {imports & TOP}"


def test_no_circle_of_rooms():
    graph, done = rooms(), set[str]()

    def visit(room: str, path: tuple[str, ...]) -> None:
        assert room not in path, " -> ".join([*path, room])
        if room not in done:
            for other in graph.get(room, ()):
                visit(other, (*path, room))
            done.add(room)

    for room in graph:
        visit(room, ())


def test_every_room_is_on_the_map():
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
    small = {"__init__", "__main__", "recordings"}
    missing = [room for room in rooms() if room not in small and f"`{room}" not in page]
    assert not missing, f"ARCHITECTURE.md does not name {missing}"
