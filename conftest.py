"""How notebooks are tested: an empty library for each, and a clear word without the model.

`pytest --nbval-lax solutions lessons` runs every cell of both sets. This file gives each notebook
an empty `mycache/`, so that none sees what another has written, and looks for the model first.
"""

import os
from pathlib import Path

import pytest

MODEL = "smollm2-135m"


def is_notebook_cell(item: pytest.Item) -> bool:
    """Nbval's items, without importing nbval: other tests do not need it."""
    return item.path.suffix == ".ipynb"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say once, in a sentence, what is missing, rather than fail in the middle of each notebook."""
    if any(is_notebook_cell(item) for item in items):
        from minicache.models import local_folder

        if local_folder(MODEL) is None:
            raise pytest.UsageError(
                f"The notebooks run {MODEL}, which is not on this machine: "
                f"run `python -m minicache models pull {MODEL}`, or `make model`."
            )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a notebook's kernel starts: its own empty library. Kernels inherit the environment."""
    if is_notebook_cell(item):
        base = item.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        folder = Path(base, f"{item.path.parent.name}-{item.path.stem}", "mycache")
        os.environ["MINICACHE_MYCACHE"] = str(folder)
