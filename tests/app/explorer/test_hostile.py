"""The explorer among hostile names, metadata, links and URLs: everything is shown as it is, nothing is obeyed."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from markdown_it import MarkdownIt

from app.commands.explore import VISIT
from app.explorer.catalogue import Entry, read_catalogue, start_folders
from app.explorer.registry import PAGES
from app.explorer.state import MOST_REFUSED, MOST_TYPED
from app.explorer.zoo import zoo_grid
from app.figures.behaviour import position_figure
from app.figures.zoo import zoo_figure
from app.figures.zoo_table import zoo_table
from models.errors import CountLensError
from models.find import SHIPPED
from models.header import CheckpointInfo
from probes.reading.behaviour import behaviour

IMAGE = "![x](http://evil.example/x.png) <img src=http://evil.example/x.png onerror=hacked=1> www.evil.example"
MARKDOWN = MarkdownIt("commonmark")
OF_COUNTER = [path for path, page in PAGES.items() if page.of_counter]
LOADED = "img src"  # part of the name of a counter that can be loaded
NAMES = (
    *("counter", "versus", "step", "folder", "drawn", "tokens", "length", "seed", "shift", "layer", "head", "site"),
    *("pids", "modulus", "solid", "edit", "every", "L0", "pair", "metric", "direction", "position", "row", "mechanism"),
    *("picture", "colours", "source", "moving", "curves", "read", "layers", "move", "move_from", "move_to", "move_by"),
    *("cell", "near", "seeds", "mark", "claim", "study"),
)  # of all parameters
URLS: dict[str, dict[str, str]] = {
    "markdown": dict.fromkeys(NAMES, IMAGE),
    "numbers": dict(zip(NAMES, ["nan", "1e400", "-1", "0x1", "1.5", "١", "inf"] * len(NAMES), strict=False)),
    "sizes": dict.fromkeys(NAMES, "9" * 5000) | {"tokens": "a " * 5000, "folder": "../" * 200 + "etc"},
    "control": dict.fromkeys(NAMES, "a\x1b[2J\x00b\u202e"),
    "unknown": {f"unknown{number}": IMAGE for number in range(200)},
}


@pytest.fixture
def open_hostile(
    open_page: Callable[..., Any], hostile_counters: Path, more_counters: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Opens a page of an explorer that was started with hostile counters."""
    folders = ["--folder", str(more_counters), "--folder", str(hostile_counters)]
    monkeypatch.setattr(sys, "argv", ["visit.py", *folders])
    return open_page


@pytest.fixture
def open_first(open_hostile: Callable[..., Any]) -> Callable[..., Any]:
    """Opens a page as the first of a session, as a link does. AppTest can where the page's file has its path's name."""
    from streamlit.testing.v1 import AppTest

    def open_(path: str, **parameters: str) -> AppTest:
        app = AppTest.from_file(str(VISIT), default_timeout=300)
        app.query_params.update(parameters)
        if path != next(iter(PAGES)):
            app.switch_page(f"explorer/pages/{path}.py")
        return app.run()

    return open_


def texts(app: Any) -> list[str]:
    """Everything on a page that streamlit reads as markdown."""
    kinds = (app.title, app.subheader, app.markdown, app.caption, app.info, app.warning, app.error)
    cells = [str(cell) for table in app.table for cell in table.value.to_numpy().ravel()]
    return [element.value for kind in kinds for element in kind] + cells


def assert_harmless(app: Any, *server_paths: Path) -> None:
    """No exception, nothing in markdown that a browser would fetch or link to, no path of the server."""
    assert not app.exception
    for text in texts(app):
        html = MARKDOWN.render(text)
        assert not re.search(r"<(img|a|script)\b", html) or "evil" not in html, text
        assert "<img" not in html
        assert not any(str(path) in text for path in (*server_paths, SHIPPED, Path().resolve())), text


def test_the_zoo_lists_what_is_sound_and_what_is_broken(open_hostile: Any, hostile_counters: Path) -> None:
    app = open_hostile("zoo", drawn="true")
    assert_harmless(app, hostile_counters)
    reasons = {row[0]: row[1] for row in app.table[0].value.itertuples(index=False)}
    for name in ("scores", "no-scores", "no-task", "layers", "folder", "pipe", "cut", "foreign"):
        assert name in reasons
    assert "Is a directory" in reasons["folder"]
    assert "is not a regular file" in reasons["pipe"]
    assert "is no UTF-8 text" in reasons[r"no-utf8-\\udcff"]
    snapshots = {name: reason for name, reason in reasons.items() if name.startswith("run/snapshots/")}
    assert "points outside of its run" in snapshots["run/snapshots/step-0000006.safetensors"]
    assert "is truncated" in snapshots["run/snapshots/step-0000008.safetensors"]
    assert "is not a file" in snapshots["run/snapshots/step-0000005.safetensors"]
    assert "step-NUMBER" in snapshots["run/snapshots/step-final.safetensors"]
    assert len(snapshots) == 5


def test_the_zoos_table_and_picture_escape_metadata() -> None:
    task = {"name": "mod10", "train_length": 50, "ood_length": 100}
    model = {"n_layers": 1, "d_model": 8}
    infos = {
        "task": CheckpointInfo("lstm", model, task | {"name": IMAGE}, "shifted"),
        "position": CheckpointInfo("transformer", model | {"position": IMAGE}, task, "shifted"),
        "family": CheckpointInfo(IMAGE, model, task, "shifted"),
        "policy": CheckpointInfo("lstm", model, task, IMAGE),
        f"{IMAGE}\n\x1b": CheckpointInfo("rnn", model, task, "shifted"),
    }
    scores = {"ind": 100.0, "ood": 50.0}
    grid = zoo_grid(Entry(name, Path("x"), name, replace(info, scores=scores)) for name, info in infos.items())
    assert len(grid.cells) == 4  # position and family are one architecture
    for text in (zoo_table(grid), zoo_figure(grid).to_json().replace("\\u003c", "<").replace("\\u003e", ">")):
        tags = set(re.findall(r"<\s*/?\s*(\w+)", text.replace("<extra>", "").replace("</extra>", "")))
        assert "evil.example" in text
        assert tags <= {"style", "div", "table", "thead", "tr", "th", "td", "a", "p", "span", "br"}
        assert not re.search(r"<a\b(?! (class=.seeds. )?href=.(behaviour\?counter=|\./\?cell=))", text)


@pytest.mark.parametrize("path", OF_COUNTER)
def test_a_counter_with_a_hostile_name_or_odd_snapshots_is_drawn(
    path: str, open_hostile: Any, hostile_counters: Path, figures: Callable[[Any], list[Any]]
) -> None:
    hostile = next(name for name in read_catalogue((hostile_counters,)).entries if LOADED in name)
    app = open_hostile(path, counter=hostile, versus="run")
    assert_harmless(app, hostile_counters)
    for text in re.findall(r"evil.{20}", str([figure["data"] for figure in figures(app)])):
        assert "<" not in text
    if path in ("behaviour", "training"):
        assert figures(app)


@pytest.mark.parametrize("name", ["task", "position", "family", "policy", "scores", "layers", "pipe"])
def test_a_counter_that_cannot_be_built_says_why_without_the_servers_paths(
    name: str, open_hostile: Any, hostile_counters: Path
) -> None:
    app = open_hostile("behaviour", counter=name)
    assert_harmless(app, hostile_counters)
    messages = [element.value for element in (*app.error, *app.info)]
    assert messages
    assert not any("/tmp" in message or "pytest" in message for message in messages)


@pytest.mark.parametrize(("path", "kind"), list(zip(PAGES, cycle(URLS), strict=False)))
def test_nonsense_in_a_url_takes_no_page_down(path: str, kind: str, open_hostile: Any) -> None:
    app = open_hostile(path, **URLS[kind])
    assert_harmless(app)
    assert app.title[0].value == PAGES[path].title


@pytest.mark.parametrize("kind", URLS)
def test_nonsense_in_a_url_is_told_briefly(kind: str, open_first: Callable[..., Any]) -> None:
    app = open_first("patching", **URLS[kind])
    assert_harmless(app)
    notes = [note.value for note in app.info if note.value.startswith("The link asked for")]
    assert len(notes) == (kind != "unknown")  # a parameter that no widget has is passed over
    for note in notes:
        assert "counter=" in note
        assert re.search(r" and \d+ more, which is not there", note)
        assert sum(f"{name}=" in note for name in NAMES) == MOST_REFUSED
        assert len(note) < 1200


def test_texts_and_switches_in_a_url_are_checked(open_first: Callable[..., Any]) -> None:
    for typed in ("a " * MOST_TYPED, "a\x1b[2Jb"):
        assert "The link asked for tokens=a" in open_first("behaviour", tokens=typed).info[0].value
    assert "The link asked for drawn=perhaps" in open_first("zoo", drawn="perhaps").info[0].value
    assert not open_first("behaviour", tokens="a a a").info


def test_a_snapshot_that_leads_out_of_the_run_is_never_read(hostile_counters: Path, tmp_path: Path) -> None:
    shutil.copytree(hostile_counters / "run", tmp_path / "run", symlinks=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.move(tmp_path / "run/snapshots", outside / "snapshots")
    (tmp_path / "run/snapshots").symlink_to(outside / "snapshots")
    entry = read_catalogue((tmp_path / "run",)).entries["run/."]
    assert not entry.snapshots
    assert all("points outside" in reason for reason in entry.broken_snapshots.values())


def test_a_typed_folder_that_is_no_name_is_refused(hostile_counters: Path) -> None:
    catalogue = read_catalogue((hostile_counters,))
    (hostile_counters / "loop").symlink_to("loop")
    try:
        for typed in ("a\x00b", "x" * 5000, "\udcff", "loop", "~", "/", "", "."):
            if typed in ("", "."):
                assert catalogue.below(typed).entries
            else:
                with pytest.raises(CountLensError, match="countlens explore --folder"):
                    catalogue.below(typed)
    finally:
        (hostile_counters / "loop").unlink()


def test_the_explorer_is_not_started_with_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    with pytest.raises(CountLensError, match="is no UTF-8 text: rename it"):
        start_folders([folder])


def test_curves_have_names_without_tags() -> None:
    from models.checkpoint import load_counter

    figure = position_figure(behaviour(load_counter("mod10/lstm-1L"), rows=2), "<a href='//evil'>x</a>", "lstm")
    assert "&lt;a href" in figure.data[-1].name
    assert "<a" not in str(figure.data)


def addresses(hostile: Path) -> list[str]:
    """Views of the explorer that hold hostile text; names, metadata and URL values go through the same few lines."""
    names = list(read_catalogue((hostile,)).entries)
    evil = [quote(name, safe="") for name in names if "evil" in name or "escape" in name]
    assert len(evil) == 3
    text = quote(IMAGE)
    return [
        "?drawn=true",
        f"?drawn=true&folder={text}",
        f"behaviour?counter={evil[0]}&versus={evil[1]}",
        f"behaviour?counter={evil[2]}&versus=task&tokens={text}",
        f"attention?counter=position&versus=scores&step={text}&layer={text}",
        f"patching?counter={text}&versus={text}&step={text}&length=x&pair={text}",
    ]


@pytest.mark.parametrize("which", [slice(1, None, 2), pytest.param(slice(0, None, 2), marks=pytest.mark.slow)])
def test_in_a_browser_nothing_foreign_is_fetched_linked_or_run(
    visit: Callable[..., Any], hostile_counters: Path, server_log: Any, which: slice
) -> None:
    for address in addresses(hostile_counters)[which]:
        tab = visit().open(address)
        found = tab.page.evaluate(
            "[...document.querySelectorAll('*')].filter(element => [...element.attributes].some("
            "({name, value}) => /^(src|srcset|href|xlink:href|action|data|poster)$|^on/.test(name)"
            " && /evil|hacked/.test(value) && !/counter=/.test(value))).map(element => element.outerHTML.slice(0, 200))"
        )
        assert found == [], address
        assert tab.page.evaluate("typeof hacked") == "undefined"
        assert tab.page.locator("[data-testid=stException]").count() == 0, address
        assert tab.said == [], address
        tab.page.close()
    assert server_log.foreign() == []  # what the pages import asks nobody either
