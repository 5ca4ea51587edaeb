"""The small pictures of a claim's numbers."""

import re

from app.figures.claim_lines import LOOKS, badge, claim_lines, describe, untested
from training.paper.finding import CLAIM_VERDICTS, Finding, Line, bounded

APE = bounded("ape <b>", 40.0, 100.0, at_least=95.0, run="mod10/ape-2L/seed0", reason="too narrow & new")
NOPE = bounded("nope", 11.8, None, at_most=15.0, run="elsewhere", interval=(10.0, 13.0))
MISSING = bounded("sine", None, 98.3, at_least=95.0)


def test_ours_the_papers_and_the_expected_range_stand_where_their_numbers_are() -> None:
    picture = claim_lines(Finding((APE, NOPE, MISSING)), ["mod10/ape-2L/seed0"])
    ape, nope = re.findall(r"<div><span>.*?</div>", picture)
    assert "class='ours' style='left: 40.0%'" in ape
    assert "class='paper' style='left: 100.0%'" in ape
    assert "class='band' style='left: 95.0%; right: 0.0%'" in ape
    assert "class='span' style='left: 10.0%; right: 87.0%'" in nope
    assert "class='paper'" not in nope
    assert "sine" not in picture.partition("<div><span>")[2]


def test_names_are_escaped_and_linked_only_where_the_counter_is_there() -> None:
    picture = claim_lines(Finding((APE, NOPE)), ["mod10/ape-2L/seed0"])
    assert "<a href='behaviour?counter=mod10%2Fape-2L%2Fseed0' target='_self'>ape &lt;b&gt;</a>" in picture
    assert "too narrow &amp; new" in picture
    assert "elsewhere" not in picture
    assert "<b>40.0</b>" in picture


def test_a_sign_says_what_the_colour_says() -> None:
    assert set(LOOKS) == set(CLAIM_VERDICTS)
    assert len({sign for _, sign in LOOKS.values()}) == len({colour for colour, _ in LOOKS.values()}) == 4
    assert "≠ does not hold here" in badge("does not hold here")
    assert "≠ <b>40.0</b>" in claim_lines(Finding((APE,)))


def test_the_picture_is_told_in_words_and_what_is_missing_is_listed() -> None:
    assert describe(Finding((APE, MISSING))) == (
        "does not hold here. ape <b>: ours 40.0, the paper 100, expected at least 95."
    )
    assert untested(Finding((APE, MISSING))) == "sine (the paper: 98.3)"


def test_numbers_outside_of_the_scale_stay_on_the_page() -> None:
    wild = Line("x", "below 30", 0.0, 30.0, 140.0, None, False, interval=(-20.0, 180.0))
    picture = claim_lines(Finding((wild,)))
    assert "class='ours' style='left: 100.0%'" in picture
    assert "class='span' style='left: 0.0%; right: 0.0%'" in picture
