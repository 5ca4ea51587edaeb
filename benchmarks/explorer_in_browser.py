"""The explorer as its users see it, in headless Chromium: the time to the first page, and from a change to its picture.

For each page a widget is changed several times; a change counts from the key that is pressed to the picture with other
data. `explorer_speed.py` has the server's part, many users and memory. Needs playwright and Chromium.
"""

import argparse
import shutil
import statistics
import subprocess
import time
import urllib.request
from typing import Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from app.commands.explore import streamlit_command
from models.find import SHIPPED, find_checkpoint

PORT = 8766
COLD = ("behaviour", "pid-pca", "attention", "patching")


def shipped(cell: str) -> str:
    """The shipped counter of a cell, as a URL has it."""
    return quote(find_checkpoint(cell).parent.relative_to(SHIPPED).as_posix(), safe="")


ATTENTION, RECURRENT = shipped("mod10/ape-2L"), shipped("mod10/lstm-1L")
# A page, a counter, and the widget that is changed.
CHANGES = (
    ("behaviour", ATTENTION, "length"),
    ("behaviour", ATTENTION, "move"),
    ("first-token", ATTENTION, "read"),
    ("pid-pca", ATTENTION, "modulus"),
    ("attention", ATTENTION, "shift"),
    ("bos-ablation", ATTENTION, "L0"),
    ("patching", ATTENTION, "position"),
    ("patching", ATTENTION, "length"),  # another map, not only another cell
    ("states", RECURRENT, "source"),
    ("training", ATTENTION, "moving"),
)
# What the pictures hold, as one string.
SEEN = """() => JSON.stringify([...document.querySelectorAll('.js-plotly-plot')].map(
    chart => [chart.data.map(trace => [trace.x, trace.y, trace.z, trace.text, trace.marker && trace.marker.color]),
              chart.layout.shapes]))"""
WATCH = f"""() => {{
    const seen = {SEEN};
    const before = seen();
    window.changed = null;
    const begin = () => {{
        const begun = performance.now();
        const look = () => {{
            const now = seen();
            if (now !== before && now !== '[]') window.changed = performance.now() - begun;
            else requestAnimationFrame(look);
        }};
        look();
    }};
    for (const kind of ['keydown', 'pointerdown'])
        document.addEventListener(kind, begin, {{once: true, capture: true}});
}}"""


def wait_for_server() -> None:
    """Waits until the server answers."""
    while True:
        try:
            urllib.request.urlopen(f"http://localhost:{PORT}/_stcore/health").close()
            return
        except OSError:
            time.sleep(0.05)


def settle(page: Any) -> None:
    """Waits until the page is complete."""
    page.wait_for_timeout(400)
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_timeout(300)


def change(page: Any, widget: str, forth: bool) -> float:
    """The milliseconds from a change to a new picture."""
    place = page.locator(f".st-key-{widget}")
    if place.get_by_role("combobox").count():  # a list: it is open before the clock starts
        place.get_by_role("combobox").click()
        page.keyboard.press("ArrowDown" if forth else "ArrowUp")
        page.wait_for_timeout(200)
        page.evaluate(WATCH)
        page.keyboard.press("Enter")
    elif place.get_by_role("slider").count():
        page.evaluate(WATCH)
        place.get_by_role("slider").press("ArrowRight" if forth else "ArrowLeft")
    else:
        page.evaluate(WATCH)
        place.locator("label").click()
    page.wait_for_function("window.changed !== null")
    return float(page.evaluate("window.changed"))


def first_page(browser: Any) -> tuple[float, float]:
    """The seconds from the start of the server to the first page's title, and to the zoo's table."""
    page = browser.new_page()
    begun = time.perf_counter()
    page.goto(f"http://localhost:{PORT}/", wait_until="commit")
    page.wait_for_selector("h1")
    title = time.perf_counter() - begun
    page.wait_for_selector(".zoo td a")
    table = time.perf_counter() - begun
    page.close()
    return title, table


def first_figure(browser: Any, path: str) -> float:
    """The seconds from the address of a page to its first figure, on a server that was never visited."""
    process = start_server()
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        begun = time.perf_counter()
        page.goto(f"http://localhost:{PORT}/{path}?counter={ATTENTION}", wait_until="commit")
        page.wait_for_selector(".js-plotly-plot .main-svg")
        seconds = time.perf_counter() - begun
        page.close()
        return seconds
    finally:
        process.terminate()
        process.wait()


def start_server() -> "subprocess.Popen[bytes]":
    """A new server that answers."""
    process = subprocess.Popen(streamlit_command(PORT, (), browser=False), stdout=subprocess.DEVNULL)
    wait_for_server()
    return process


def measure(browser: Any, changes: int) -> None:
    """Measures every page and prints a line for each."""
    title, table = first_page(browser)
    print(f"first page of a new server: title after {title:.1f} s, zoo after {table:.1f} s")
    print(f"and again, in another tab: {first_page(browser)[1]:.1f} s")
    for path, counter, widget in CHANGES:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        page.goto(f"http://localhost:{PORT}/{path}?counter={counter}")
        page.wait_for_selector("h1")
        settle(page)
        times = []
        for number in range(changes):
            # Lists are short: back and forth. Sliders go on, so that every change is computed.
            forth = number % 2 == 0 if page.locator(f".st-key-{widget}").get_by_role("combobox").count() else True
            times.append(change(page, widget, forth))
            settle(page)
        print(
            f"{path:13} {widget:9} median {statistics.median(times):4.0f} ms, "
            f"quickest {min(times):4.0f}, slowest {max(times):4.0f}",
            flush=True,
        )
        page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=10, help="changes of each page's widget")
    parser.add_argument("--cold", nargs="*", default=COLD, help="pages that are opened on a server of their own")
    args = parser.parse_args()
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        browser.new_page().close()  # the browser's own start is not the explorer's
        for path in args.cold:
            print(f"{path} on a new server: first figure after {first_figure(browser, path):.1f} s", flush=True)
        process = start_server()
        try:
            measure(browser, args.changes)
        finally:
            process.terminate()
        browser.close()


if __name__ == "__main__":
    main()
