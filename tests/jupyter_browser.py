"""JupyterLab in a headless Chromium: open a notebook, run it, press keys, take pictures of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CHROMIUM = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,1400",
]  # fmt: skip
NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}
"""The news pop-up hides figures."""
READY = """
const panel = window.jupyterapp && window.jupyterapp.shell.currentWidget;
const session = panel && panel.sessionContext && panel.sessionContext.session;
const kernel = session && session.kernel;
return !!kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
"""
CELLS = """
return window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(
    cell => cell.toJSON());
"""
SAVE = "return window.jupyterapp && window.jupyterapp.commands.execute('docmanager:save');"
"""Leaving an unsaved notebook makes the page ask whether to."""
GO_TO_CELL = """
const notebook = window.jupyterapp.shell.currentWidget.content;
notebook.activeCellIndex = arguments[0];
return notebook.scrollToItem(arguments[0], 'start').catch(() => null);
"""
"""Lab draws only the cells near the view; a picture needs its cell there first."""


def missing() -> str:
    """Why there can be no browser here, or nothing."""
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        return "needs Chromium: apt-get install --no-install-recommends chromium chromium-driver"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "needs selenium: pip install selenium"
    return ""


@contextlib.contextmanager
def jupyterlab(root: Path, scratch: Path) -> Iterator[str]:
    """A JupyterLab over `root` with no settings but ours; yields its address."""
    settings = scratch / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(NO_NEWS))
    port = free_port()
    command = [
        sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--port={port}", "--no-browser",
        "--allow-root", "--IdentityProvider.token=t", "--LabApp.expose_app_in_browser=True",
        f"--notebook-dir={root}", f"--LabApp.user_settings_dir={scratch / 'settings'}",
        f"--LabApp.workspaces_dir={scratch / 'workspaces'}",
    ]  # fmt: skip
    own = {
        name: str(scratch / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    environment = {**os.environ, **own, "MINICACHE_MYCACHE": str(scratch / "mycache")}
    with open(scratch / "jupyter.log", "w") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            address = f"http://127.0.0.1:{port}"
            wait(lambda: answers(f"{address}/api?token=t"), 60, "JupyterLab does not start")
            yield address
        finally:
            server.terminate()
            server.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


def wait(until: Callable[[], Any], seconds: float, complaint: str) -> Any:
    """Ask until there is an answer; raises `TimeoutError` with the complaint."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = until()
        if found:
            return found
        time.sleep(0.1)
    raise TimeoutError(complaint)


class Browser:
    """One Chromium window on one JupyterLab."""

    def __init__(self, address: str, profile: Path) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        for argument in [*CHROMIUM, f"--user-data-dir={profile}"]:
            options.add_argument(argument)
        options.binary_location = shutil.which("chromium") or ""
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.address = address
        self.driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))

    def close(self) -> None:
        self.driver.quit()

    def open(self, notebook: str) -> None:
        """Open a notebook and wait for its kernel: a look at the page alone is not enough."""
        self.driver.execute_script(SAVE)
        self.driver.get(f"{self.address}/lab/tree/{notebook}?token=t&reset")
        wait(lambda: self.driver.execute_script(READY), 90, f"{notebook} gets no kernel")

    def run_all(self, seconds: float) -> list[dict[str, Any]]:
        """Run every cell and return them, outputs and all."""
        self.driver.execute_script("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        wait(self.has_run, seconds, "the notebook does not come to its end")
        return self.cells()

    def has_run(self) -> bool:
        code = [cell for cell in self.cells() if cell["cell_type"] == "code"]
        idle = self.driver.execute_script(READY)
        return idle and all(cell["execution_count"] for cell in code)

    def cells(self) -> list[dict[str, Any]]:
        return self.driver.execute_script(CELLS)

    def go_to(self, number: int) -> None:
        """Scroll to a cell."""
        self.driver.execute_script(GO_TO_CELL, number)
        time.sleep(0.7)

    def theme(self, name: str) -> None:
        """'JupyterLab Light' or 'JupyterLab Dark'."""
        self.driver.execute_script(
            "return window.jupyterapp.commands.execute("
            "'apputils:change-theme', {theme: arguments[0]})",
            name,
        )
        time.sleep(1.0)

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))

    def complaints(self) -> list[str]:
        """What the page has logged as an error since the last call."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    # --- the widget of the active cell ------------------------------------------------------------

    def output(self) -> Any:
        """The output area of the active cell."""
        from selenium.webdriver.common.by import By

        return self.driver.find_element(
            By.CSS_SELECTOR, ".jp-Cell.jp-mod-active .jp-Cell-outputArea"
        )

    def picture(self) -> str:
        """The SVG that the active cell shows, as text."""
        script = "return arguments[0].querySelector('.widget-html svg').outerHTML"
        return self.driver.execute_script(script, self.output())

    def press(self, control: str, keys: list[str]) -> None:
        """Focus the first element that the selector finds in the output, and press keys there."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        element = self.output().find_element(By.CSS_SELECTOR, control)
        self.driver.execute_script("arguments[0].focus()", element)
        for key in keys:
            self.driver.switch_to.active_element.send_keys(getattr(Keys, key))

    def changed(self, before: str, control: str) -> None:
        """Wait until the picture is another one."""
        wait(lambda: self.picture() != before, 10, f"{control} does not change the picture")

    def colours(self) -> tuple[str, str]:
        """The colours of the picture's text and of its paper, as the browser computes them."""
        script = """
        const svg = arguments[0].querySelector('.widget-html svg');
        return [getComputedStyle(svg.querySelector('text.t')).fill,
                getComputedStyle(svg.querySelector('.paper')).fill];"""
        ink, paper = self.driver.execute_script(script, self.output())
        return ink, paper
