"""The explorer for tests: in one process with AppTest, and on a server with a real browser."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
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


def write_changed_counter(folder: Path, **changes: Any) -> Path:
    """A checkpoint like a shipped one whose metadata have other values; returns the file in the folder."""
    content = next((ROOT / "checkpoints/mod10").glob("lstm-1L/*/model.safetensors")).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    fields = json.loads(header["__metadata__"]["countlens"]) | changes
    header["__metadata__"]["countlens"] = json.dumps(fields)
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    folder.mkdir(parents=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return path


@pytest.fixture(scope="session")
def write_counter() -> Callable[..., Path]:
    """Writes a checkpoint with changed metadata into a new folder."""
    return write_changed_counter


IMAGE = "![x](http://evil.example/x.png) <img src=http://evil.example/x.png onerror=hacked=1> www.evil.example"
LINK = "<a href='http://evil.example'>x</a>"


@pytest.fixture(scope="session")
def hostile_counters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of counters whose names and metadata would have the visitor's browser or terminal do something."""
    folder = tmp_path_factory.mktemp("hostile")
    task = {"name": "mod10", "train_length": 50, "ood_length": 100}
    # Counters that can be loaded, in folders with odd names.
    write_changed_counter(folder / IMAGE)
    write_changed_counter(folder / f"{LINK} <script>hacked=1<")
    write_changed_counter(folder / "\x1b[2Jescape\nline\u202e")
    write_changed_counter(Path(os.fsdecode(os.fsencode(folder) + b"/no-utf8-\xff")))
    # Metadata that a list shows, and that no counter can be built from.
    write_changed_counter(folder / "task", task=task | {"name": IMAGE})
    write_changed_counter(folder / "position", model={"position": LINK, "n_layers": 1, "d_model": 8})
    write_changed_counter(folder / "family", family=IMAGE)
    write_changed_counter(folder / "policy", policy=LINK)
    # Metadata that are none, and files that are none.
    write_changed_counter(folder / "scores", scores={"ind": IMAGE, "ood": 1.0})
    write_changed_counter(folder / "no-scores", scores=None)
    write_changed_counter(folder / "no-task", task={})
    write_changed_counter(folder / "layers", model={"n_layers": "x"})
    (folder / "folder/model.safetensors").mkdir(parents=True)
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe/model.safetensors")
    # A run whose snapshots are odd.
    run = next((ROOT / "checkpoints/mod10").glob("ape-2L/*/snapshots")).parent
    shutil.copytree(run, folder / "run")
    outside = tmp_path_factory.mktemp("outside") / "secret.safetensors"
    shutil.copy(run / "model.safetensors", outside)
    snapshots = folder / "run/snapshots"
    (snapshots / "step-final.safetensors").touch()
    (snapshots / f"{IMAGE.replace('/', ':')}.safetensors").touch()
    (snapshots / "step-0000005.safetensors").mkdir()
    (snapshots / "step-0000006.safetensors").symlink_to(outside)
    first = next(snapshots.glob("step-0000000.*"))
    (snapshots / "step-0000008.safetensors").write_bytes(first.read_bytes()[:3000])
    return folder


@pytest.fixture
def paper_examines() -> tuple[str, ...]:
    """The claims for which the page Paper looks inside counters, for 15 seconds in all; its own tests have some."""
    return ()


@pytest.fixture
def open_page(
    more_counters: Path, monkeypatch: pytest.MonkeyPatch, paper_examines: tuple[str, ...]
) -> Callable[..., Any]:
    """Opens a page of the explorer, with parameters in its URL, as an AppTest that has run."""
    from streamlit.testing.v1 import AppTest
    from streamlit.util import calc_hash

    from app.explorer.registry import PAGES
    from app.explorer.walk import STOPS

    for name, stop in STOPS.items():
        monkeypatch.setitem(STOPS, name, stop if name in paper_examines else replace(stop, inside=None))
    monkeypatch.setattr(sys, "argv", ["visit.py", "--folder", str(more_counters)])
    # A script that is run by AppTest becomes `__main__`, which processes that other tests spawn would then run again.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def open_(path: str, **parameters: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app/visit.py"), default_timeout=300)
        app.query_params.update(parameters)
        if path != next(iter(PAGES)):
            # As a link does. `switch_page` knows pages with a path of their own only after a run of the first one.
            app._page_hash = calc_hash(path)
        return app.run()

    return open_


@pytest.fixture
def figures() -> Callable[[Any], list[dict[str, Any]]]:
    """The figures on a page of an AppTest, as plotly's JSON."""
    return lambda app: [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


class NetworkLog:
    """Notes what the Python processes that are started with its environment ask of the network."""

    # Imported by every Python at its start, before anything else.
    CODE = """import os, socket
def note(kind, place):
    with open(os.environ["NETWORK_LOG"], "a") as file:
        file.write(f"{kind} {place[0] if isinstance(place, tuple) else place}\\n")
def listened(owner, name):
    function = getattr(owner, name)
    def call(*args, **more):
        note(name, args[1] if owner is socket.socket else args[0])
        return function(*args, **more)
    setattr(owner, name, call)
for name in ("connect", "connect_ex", "bind"):
    listened(socket.socket, name)
for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
    listened(socket, name)
"""
    HERE = ("localhost", "127.0.0.1", "::1", "None")

    def __init__(self, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(self.CODE)
        self.file = folder / "network.log"
        self.file.touch()
        self.environment = os.environ | {"PYTHONPATH": str(folder), "NETWORK_LOG": str(self.file)}

    def places(self, *kinds: str) -> list[str]:
        """The hosts that were asked for in these ways."""
        lines = [line.split(maxsplit=1) for line in self.file.read_text().splitlines()]
        return [line[1] for line in lines if line[0] in kinds and len(line) > 1]

    def foreign(self) -> list[str]:
        """The hosts elsewhere that were looked up or connected to."""
        asked = self.places("connect", "connect_ex", "getaddrinfo", "gethostbyname", "gethostbyname_ex")
        return [host for host in asked if host not in self.HERE and not host.startswith("/")]  # /: a local socket


@pytest.fixture
def network_log(tmp_path: Path) -> NetworkLog:
    """An empty log."""
    return NetworkLog(tmp_path)


@pytest.fixture(scope="session")
def server_log(tmp_path_factory: pytest.TempPathFactory) -> NetworkLog:
    """The log of the running explorer."""
    return NetworkLog(tmp_path_factory.mktemp("network"))


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int, log: NetworkLog, folder: Path = ROOT) -> Iterator[str]:
    """Starts a streamlit server, and stops it in the end. Gives its address once it answers."""
    process = subprocess.Popen(command, cwd=folder, env=log.environment)
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
def serve() -> Callable[..., AbstractContextManager[str]]:
    """Starts a server on a port: `with serve(lambda port: command, log) as address`."""

    def start(command: Callable[[int], list[str]], log: NetworkLog, folder: Path = ROOT) -> AbstractContextManager[str]:
        port = free_port()
        return serving(command(port), port, log, folder)

    return start


@pytest.fixture(scope="session")
def server(
    serve: Callable[..., AbstractContextManager[str]],
    more_counters: Path,
    hostile_counters: Path,
    server_log: NetworkLog,
) -> Iterator[str]:
    """The address of a running explorer."""
    from app.commands.explore import streamlit_command

    folders = (more_counters, hostile_counters)
    with serve(lambda port: streamlit_command(port, folders, browser=False), server_log) as address:
        yield address


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
