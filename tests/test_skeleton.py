"""The Makefile, .ci/run and environment.yml, on machines that lack something."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A python3 that notes what it is asked, can lack venv or be old, and makes virtual environments
# whose python is itself: set-up is tried without downloading anything.
FAKE_PYTHON = f"""#!/bin/sh
echo "$@" >> "$FAKE_LOG"
case "$*" in
    *ensurepip*) [ -z "$FAKE_NO_VENV" ] ;;
    *"version_info < (3, 11)"*) [ -z "$FAKE_OLD" ] ;;
    --version) echo "Python ${{FAKE_OLD:-3.12.1}}" ;;
    "-m venv"*) rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip install"*) exit "${{FAKE_PIP:-0}}" ;;
    "-m "*) ;;
    *) exec {sys.executable} "$@" ;;
esac
"""


class Checkout:
    """A copy of the files that set-up reads, and a PATH whose python3 is the fake one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "a folder"
        self.log = folder / "log"
        self.log.touch()
        (self.folder / ".ci").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", ".ci/run"):
            shutil.copy(ROOT / name, self.folder / name)
        self.commands = folder / "commands"
        self.commands.mkdir()
        self.add_command("python3", FAKE_PYTHON)

    def add_command(self, name: str, text: str) -> None:
        (self.commands / name).write_text(text)
        (self.commands / name).chmod(0o755)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        kept |= {"FAKE_LOG": str(self.log), "PATH": f"{self.commands}:{os.environ['PATH']}"}
        return subprocess.run(
            words,
            cwd=self.folder,
            env=kept | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> list[str]:
        """What python was asked since the last look."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def one_sentence(text: str) -> str:
    """The only line on stderr, apart from make's own last word."""
    lines = [line for line in text.splitlines() if not line.startswith("make")]
    assert len(lines) == 1, text
    return lines[0]


def test_a_missing_venv_names_the_package(checkout: Checkout):
    done = checkout.run("make", "setup", FAKE_NO_VENV="1")
    assert done.returncode != 0
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert f"install the package {package}" in one_sentence(done.stderr)
    assert not (checkout.folder / ".venv").exists()


def test_an_old_python_is_named_with_the_way_out(checkout: Checkout):
    done = checkout.run("make", "demo", FAKE_OLD="3.9.2")
    assert done.returncode != 0
    said = one_sentence(done.stderr)
    assert "Python 3.9.2 is too old" in said and "3.11" in said and "make PYTHON=" in said


def test_no_python_at_all(checkout: Checkout):
    done = checkout.run("make", "test", "PYTHON=python-of-nowhere")
    assert done.returncode != 0
    assert "There is no python-of-nowhere here" in one_sentence(done.stderr)


def test_set_up_is_one_pip_call_and_is_done_once(checkout: Checkout):
    assert checkout.run("make", "demo").returncode == 0
    calls = checkout.calls()
    assert [call for call in calls if "pip install" in call] == [
        "-m pip install --disable-pip-version-check -e .[dev]"
    ]
    assert calls[-2:] == [
        "-m minicache models pull smollm2-135m",
        "-m minicache demo --model smollm2-135m",
    ]
    assert checkout.run("make", "demo", "ARGS=--policy static").returncode == 0
    assert checkout.calls() == [
        "-m minicache models pull smollm2-135m",
        "-m minicache demo --model smollm2-135m --policy static",
    ]


def test_touching_pyproject_changes_nothing_but_editing_it_sets_up_again(checkout: Checkout):
    project = checkout.folder / "pyproject.toml"
    checkout.run("make", "setup")
    checkout.calls()
    os.utime(project, (1e9, 1e9))
    checkout.run("make", "setup")
    os.utime(project)
    assert checkout.run("make", "setup").returncode == 0
    assert not [call for call in checkout.calls() if "pip install" in call]
    project.write_text(project.read_text() + "\n# another dependency\n")
    assert checkout.run("make", "setup").returncode == 0
    assert [call for call in checkout.calls() if "pip install" in call]


def test_a_set_up_that_failed_is_tried_again_in_the_same_venv(checkout: Checkout):
    assert checkout.run("make", "setup", FAKE_PIP="1").returncode != 0
    assert checkout.run("make", "setup").returncode == 0
    calls = checkout.calls()
    assert len([call for call in calls if "pip install" in call]) == 2
    assert len([call for call in calls if "-m venv" in call]) == 1


def test_test_runs_the_suite_and_its_failure_fails(checkout: Checkout):
    failing = FAKE_PYTHON.replace('"-m "*) ;;', '"-m pytest"*) exit 1 ;;\n    "-m "*) ;;')
    checkout.add_command("python3", failing)
    assert checkout.run("make", "test").returncode != 0
    assert "-m pytest -n 2 tests" in checkout.calls()


def test_help_names_every_target():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    done = subprocess.run(["make", "-s", "-C", ROOT, "help"], capture_output=True, text=True)
    for target in phony[1].split():
        assert re.search(rf"^  make {target} +\S", done.stdout, re.MULTILINE), target


def test_ci_lints_then_tests_and_passes_failure_on(checkout: Checkout):
    checkout.add_command("make", '#!/bin/sh\necho "make $*" >> "$FAKE_LOG"\n[ "$1" != "$BAD" ]\n')
    assert checkout.run("bash", ".ci/run").returncode == 0
    assert [call for call in checkout.calls() if call.startswith("make")] == [
        "make lint",
        "make test",
    ]
    assert checkout.run("bash", ".ci/run", BAD="lint").returncode != 0
    assert "make test" not in checkout.calls()
    assert checkout.run("bash", ".ci/run", BAD="test").returncode != 0


def test_ci_installs_a_missing_venv_as_root_and_says_so_otherwise(checkout: Checkout):
    for name in ("make", "apt-get"):
        checkout.add_command(name, f'#!/bin/sh\necho "{name} $*" >> "$FAKE_LOG"\n')
    checkout.add_command("id", '#!/bin/sh\necho "$FAKE_ID"\n')
    done = checkout.run("bash", ".ci/run", FAKE_NO_VENV="1", FAKE_ID="1000")
    assert done.returncode != 0 and "python3-venv" in one_sentence(done.stderr)
    checkout.calls()
    assert checkout.run("bash", ".ci/run", FAKE_NO_VENV="1", FAKE_ID="0").returncode == 0
    assert any("install" in call and "python3-venv" in call for call in checkout.calls())


def test_conda_gets_the_same_packages_and_python():
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    conda = (ROOT / "environment.yml").read_text()
    assert "- -e .[dev]" in conda
    assert f"- python{project['requires-python']}" in conda


def test_the_licence_is_the_one_that_is_declared():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["license"] == "Apache-2.0"
