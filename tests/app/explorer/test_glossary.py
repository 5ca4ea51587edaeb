"""The glossary: one list of words, which the README shares and every page shows."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.explorer.glossary import GLOSSARY
from models.architectures import architectures

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readmes_table_of_words_is_part_of_it() -> None:
    section = README.read_text().partition("## Words")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)[1:]
    assert len(rows) >= 7
    for word, meaning in rows:
        assert GLOSSARY[word] == meaning


def test_it_explains_every_architecture_and_what_the_pages_abbreviate() -> None:
    text = " ".join([*GLOSSARY, *GLOSSARY.values()])
    for word in (*architectures(), "IND", "OOD", "PID", "bos", "site", "seed", "probe"):
        assert re.search(rf"\b{word}\b", text), word


def test_in_a_browser_it_is_one_click_away(visit: Callable[..., Any]) -> None:
    for device in ("desktop", "phone"):
        tab = visit(device).open("behaviour")
        assert not tab.page.get_by_text(GLOSSARY["shift"]).is_visible()
        tab.page.get_by_role("button", name="Words").click()
        tab.page.get_by_text(GLOSSARY["shift"]).wait_for()
        width = tab.page.evaluate("document.querySelector('[data-testid=stPopoverBody]').getBoundingClientRect().right")
        assert width <= tab.page.viewport_size["width"]
        assert tab.said == []
