"""URLs of the explorer: every page is drawn, and shows nothing of the server's own."""

import random
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest

import app.explorer.catalogue
import models.find
from app.commands.explore import VISIT
from app.explorer.registry import PAGES
from probes.studies.result import RESULT
from tests.fuzz import studies
from tests.fuzz.checkpoints import mutate_checkpoint
from tests.fuzz.harness import Case, DifferentError
from tests.fuzz.mutate import NUMBERS, TEXTS, put_odd_file
from tests.fuzz.sources import tiny_config, write_counter
from training.run.folder import RunFolder
from training.run.loop import train

PARAMETERS = (
    *("counter", "versus", "step", "folder", "drawn", "tokens", "length", "seed", "shift", "layer", "head", "site"),
    *("pids", "modulus", "solid", "edit", "every", "L0", "L0H0", "pair", "metric", "direction", "position", "row"),
    *("mechanism", "picture", "colours", "source", "moving", "curves", "read", "layers", "cell", "near", "seeds"),
    *("mark", "claim", "study", "move", "move_from", "move_to", "move_by", "rows", "over_training"),
)
PLAUSIBLE = (
    "0",
    "1",
    "2",
    "3",
    "5",
    "true",
    "false",
    "none",
    "best",
    "a a a",
    "resid_post",
    "shift",
    "accuracy",
    "mod10",
    "zoo/studies/toy-quick",
    "beginning: own",
)
SENDABLE = tuple(text for text in TEXTS if text != "\ud800")  # a URL is UTF-8
MARKDOWN = MarkdownIt("commonmark")


def prepare(folder: Path) -> None:
    train(RunFolder.create(folder / "zoo/run", tiny_config("ape", snapshots=2)), progress=False)
    train(RunFolder.create(folder / "zoo/recurrent", tiny_config("lstm", snapshots=2)), progress=False)
    write_counter(folder / "zoo/selective/model.safetensors", tiny_config("rope", "selective"))
    write_counter(folder / "zoo/first/model.safetensors", tiny_config("nope", "first_tok_homogeneous"))
    sound = (folder / "zoo/selective/model.safetensors").read_bytes()
    chance = random.Random(0)
    for number in range(4):
        path = folder / f"zoo/broken{number}/model.safetensors"
        path.parent.mkdir()
        path.write_bytes(mutate_checkpoint(sound, chance, sound))
    put_odd_file(folder / "zoo/broken0/model.safetensors", chance)
    studies.prepare(folder / "zoo/studies")
    for number in range(4):
        shutil.copytree(folder / "zoo/studies/toy-quick", folder / f"zoo/studies/broken{number}")
        studies.damage_file(folder / f"zoo/studies/broken{number}" / RESULT, chance)
    (folder / "zoo/scores.csv").write_text("name,task\nx,y\n")


def open_border(folder: Path) -> Case:
    zoo = folder / "zoo"
    counters = sorted(path.parent.name for path in zoo.glob("*/model.safetensors"))
    study_names = sorted(f"zoo/studies/{path.name}" for path in (zoo / "studies").iterdir())
    sys.argv = ["visit.py"]
    # The shipped counters are not what is tested here.
    patch.object(models.find, "SHIPPED", zoo).start()
    patch.object(app.explorer.catalogue, "SHIPPED", zoo).start()
    for page in PAGES:  # what a page imports is not a case's
        open_page(page, {"counter": "run"})

    def case(chance: random.Random, place: Path) -> Literal["accepted", "refused"]:
        page, query = make_url(counters, study_names, chance)
        (place / "url.txt").write_text(f"{page} {query!r}\n", errors="backslashreplace")
        return check(open_page(page, query), page, folder)

    return case


def open_page(path: str, query: dict[str, str]) -> AppTest:
    """A page of the explorer, with parameters in its URL."""
    page = AppTest.from_file(str(VISIT), default_timeout=60)
    page.query_params.update(query)
    if path == PAGES[path].module:  # as the first page of a session, as a link does
        page.switch_page(f"explorer/pages/{path}.py")
        return page.run()
    page.run()
    page.switch_page(PAGES[path].script)
    return page.run()


def check(page: AppTest, path: str, folder: Path) -> Literal["accepted", "refused"]:
    """The page is there, without an exception, a foreign picture or link, or a path of the server."""
    if page.exception:
        raise RuntimeError("\n".join([page.exception[0].message, *page.exception[0].stack_trace]))
    if page.title[0].value != PAGES[path].title:
        raise DifferentError(f"the page {page.title[0].value}")
    for text in texts(page):
        html = MARKDOWN.render(text)
        if "<img" in html or ("evil" in html and re.search(r"<(a|script)\b", html)):
            raise DifferentError(f"active markdown: {text}")
        if str(folder) in text or str(Path.cwd()) in text:
            raise DifferentError(f"a path of the server: {text}")
    refusals = [*page.error, *(note for note in page.info if note.value.startswith("The link asked for"))]
    return "refused" if refusals else "accepted"


def texts(page: AppTest) -> list[str]:
    """Everything on a page that streamlit reads as markdown, and code."""
    kinds: tuple[Any, ...] = (
        page.title,
        page.subheader,
        page.markdown,
        page.caption,
        page.info,
        page.warning,
        page.error,
        page.code,
    )
    cells = [str(cell) for table in page.table for cell in table.value.to_numpy().ravel()]
    return [element.value for kind in kinds for element in kind] + cells


def make_url(counters: list[str], study_names: list[str], chance: random.Random) -> tuple[str, dict[str, str]]:
    """A page and some parameters, each with a value that may fit."""
    names = chance.sample(PARAMETERS, chance.choice((1, 2, 4, len(PARAMETERS))))
    query = {name: _value(chance) for name in names}
    if chance.random() < 0.7:
        query["counter"] = chance.choice(counters)
    if chance.random() < 0.3:
        query["versus"] = chance.choice(counters)
    if chance.random() < 0.5:
        query["study"] = chance.choice(study_names)
    if chance.random() < 0.05:
        query[chance.choice(SENDABLE) or "x"] = _value(chance)
    return chance.choice(list(PAGES)), query


def _value(chance: random.Random) -> str:
    kind = chance.randrange(5)
    if kind < 2:
        return chance.choice(PLAUSIBLE)
    return chance.choice(SENDABLE) if kind < 4 else str(chance.choice([n for n in NUMBERS if n != 10**400]))
