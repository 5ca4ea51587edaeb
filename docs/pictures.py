"""Draws the README's pictures from shipped counters: needs `pip install kaleido playwright` and a Chrome or Chromium.

python docs/pictures.py            # all of them
python docs/pictures.py --pages    # the explorer's pages alone
"""

import argparse
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from app.commands.explore import streamlit_command
from app.figures.positions import Curve, accuracy_figure
from models import load_counter
from models.find import SHIPPED, named_counters
from training import evaluate
from training.tasks import make_task

HERE = Path(__file__).parent
SCHEMES = ("ape", "sine", "spe", "nope", "rope")
PORT = 8767
SIZE = {"width": 1280, "height": 860}


def shipped(task: str, scheme: str) -> tuple[str, Path]:
    """The shipped counter of a scheme: its name and its file."""
    return next(found for found in named_counters((SHIPPED,)) if found[0].startswith(f"{task}/{scheme}-2L/"))


def draw_accuracy() -> None:
    """The accuracy of every scheme at each position of a row."""
    task = make_task("mod10")
    curves = []
    for scheme in SCHEMES:
        counter = load_counter(shipped("mod10", scheme)[1])
        curves.append(Curve(scheme, scheme, evaluate(counter, task, "shifted")))
    figure = accuracy_figure(curves, task.train_length, "Counting modulo 10: accuracy at each position")
    figure.write_image(HERE / "mod10.svg", width=860, height=380)


def draw_pages() -> None:
    """Two pages of the explorer, each scrolled to the text that is named beside it."""
    counter, _ = shipped("mod10", "ape")
    moved = urlencode({"counter": counter, "move": "first token +3", "length": 40})
    pages = {"explorer.png": (f"behaviour?{moved}", "Behaviour"), "paper_page.png": ("paper", "Modulo 10")}
    server = subprocess.Popen(streamlit_command(PORT, (), browser=False), stdout=subprocess.DEVNULL)
    try:
        _wait_for_server()
        _photograph(pages)
    finally:
        server.terminate()


def _wait_for_server() -> None:
    while True:
        try:
            urllib.request.urlopen(f"http://localhost:{PORT}/_stcore/health").close()
            return
        except OSError:
            time.sleep(0.1)


def _photograph(pages: dict[str, tuple[str, str]]) -> None:
    """Writes a picture of each page, by file name: its address, and the beginning of the heading on top."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (address, heading) in pages.items():
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.set_default_timeout(600_000)
            page.goto(f"http://localhost:{PORT}/{address}")
            page.wait_for_selector("h1")
            page.wait_for_timeout(1000)
            page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
            page.locator("h1, h3").filter(has_text=heading).first.evaluate("it => it.scrollIntoView()")
            page.wait_for_timeout(1000)
            page.screenshot(path=HERE / name)
            Image.open(HERE / name).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(HERE / name)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", action="store_true", help="the explorer's pages alone")
    if not parser.parse_args().pages:
        draw_accuracy()
    draw_pages()


if __name__ == "__main__":
    main()
