"""The explorer for tests: in one process with AppTest, and on a server with a real browser."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shipped import shipped

from models.find import CHECKPOINT, SHIPPED

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
# Streamlit looks for its own address first below the page's, and the browser notes that there is nothing.
LOOKS_FOR_ITSELF = ("_stcore/health", "_stcore/host-config")


@pytest.fixture(scope="session")
def more_counters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file that was cut short, one that is none of ours, and a sound counter."""
    folder = tmp_path_factory.mktemp("more")
    sound = (SHIPPED / shipped("mod10/spe-2L") / CHECKPOINT).read_bytes()
    for name, content in {"cut": sound[:5000], "foreign": b"PK\x03\x04 no tensors", "sound": sound}.items():
        (folder / name).mkdir()
        (folder / name / "model.safetensors").write_bytes(content)
    return folder


@pytest.fixture
def open_page(more_counters: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Opens a page of the explorer, with parameters in its URL, as an AppTest that has run."""
    from streamlit.testing.v1 import AppTest

    from app.explorer.registry import PAGES

    monkeypatch.setattr(sys, "argv", ["main.py", "--folder", str(more_counters)])
    # A script that is run by AppTest becomes `__main__`, which processes that other tests spawn would then run again.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def open_(path: str, **parameters: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app/main.py"), default_timeout=120)
        app.query_params.update(parameters)
        app.run()
        if path != next(iter(PAGES)):
            app.switch_page(f"views/{PAGES[path].module}.py")
            app.run()
        return app

    return open_


@pytest.fixture
def figures() -> Callable[[Any], list[dict[str, Any]]]:
    """The figures on a page of an AppTest, as plotly's JSON."""
    return lambda app: [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


@pytest.fixture(scope="session")
def server(more_counters: Path) -> Iterator[str]:
    """The address of a running explorer."""
    from app.commands.explore import streamlit_command

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(streamlit_command(port, (more_counters,), browser=False), cwd=ROOT)
    address = f"http://localhost:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/_stcore/health").close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser, without a screen."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        installed = [path for path in map(shutil.which, CHROMIUM_NAMES) if path]
        chromium = next(iter(installed), started.chromium.executable_path)
        if not Path(chromium).exists():
            pytest.skip("no browser: `apt install chromium`, or `.venv/bin/playwright install --with-deps chromium`")
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS, timeout=300_000)
        yield browser
        browser.close()


class Visit:
    """A tab, with a session of its own."""

    def __init__(self, context: Any, server: str) -> None:
        self.server, self.page = server, context.new_page()
        self.said: list[str] = []  # errors on the console, and requests to elsewhere
        self.page.set_default_timeout(300_000)
        self.page.on("console", self._listen)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._stay_home)

    def _listen(self, message: Any) -> None:
        if message.type == "error" and not message.location["url"].endswith(LOOKS_FOR_ITSELF):
            self.said.append(message.text)

    def _stay_home(self, request: Any) -> None:
        if not request.url.startswith((self.server, "data:", "blob:")):
            self.said.append(f"asked for {request.url[:80]}")

    def open(self, address: str) -> "Visit":
        """Goes to a page, by its path and parameters or by its whole address, and waits until it is drawn."""
        self.page.goto(address if address.startswith("http") else f"{self.server}/{address}")
        self.page.wait_for_selector("h1")
        return self.settle()

    def settle(self) -> "Visit":
        """Waits until the server has nothing more to say, and what it said is drawn."""
        self.page.wait_for_timeout(300)
        self.page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
        waiting = "[data-testid=stSkeleton], .stPlotlyChart:not(:has(.main-svg))"
        self.page.wait_for_function(f"!document.querySelector('{waiting}')")
        self.page.wait_for_timeout(300)
        return self

    def data(self) -> list[Any]:
        """The data in the figures that are shown."""
        return self.page.evaluate(
            "[...document.querySelectorAll('.js-plotly-plot')].map(chart => JSON.parse(JSON.stringify("
            "chart.data.map(({x, y, z, text}) => ({x, y, z, text})))))"
        )


@pytest.fixture(scope="session")
def contexts(browser: Any) -> dict[str, Any]:
    """A desktop and a phone at night. Tabs of one share the browser's cache, as they do at home."""
    return {
        "desktop": browser.new_context(viewport={"width": 1280, "height": 1300}, color_scheme="light"),
        "phone": browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark"),
    }


@pytest.fixture
def visit(contexts: dict[str, Any], server: str) -> Iterator[Callable[..., Visit]]:
    """Opens tabs on the desktop, or on the phone; they are closed after the test."""
    visits: list[Visit] = []

    def open_tab(device: str = "desktop") -> Visit:
        visits.append(Visit(contexts[device], server))
        return visits[-1]

    yield open_tab
    for opened in visits:
        opened.page.close()
