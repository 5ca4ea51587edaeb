"""A probe is its file, a line in each of two registries; a page is its file and one entry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from shipped import shipped

from models import build_counter, load_counter
from models.find import SHIPPED
from probes.registry import PROBES


def test_the_probe_finds_a_planted_truth_and_nothing_in_noise() -> None:
    from probes.reading.reach import reach, right_before_mistake

    scored = torch.tensor([[False, True, True, True], [True, True, False, False]])
    right = torch.tensor([[False, True, True, False], [False, True, True, True]])
    assert right_before_mistake(right, scored).tolist() == [2, 0]
    counter = load_counter(shipped("mod10/lstm-1L"))
    result = reach(counter, rows=64)
    assert (result.reach > 50).all()  # every OOD row is longer than the training rows, and all of it is right
    assert "It counts" in result.verdict.sentence
    fresh = build_counter(counter.cfg, torch.Generator().manual_seed(1)).eval()
    fresh.info = counter.info
    noise = reach(fresh, rows=64)
    assert "It does not count" in noise.verdict.sentence
    assert np.median(noise.reach) < 5


def test_command_line_and_report_know_the_probe(tmp_path: Path, countlens: Callable[..., str]) -> None:
    assert PROBES["reach"].question in countlens("probe")
    counter = shipped("mod10/lstm-1L")
    assert "It counts" in countlens("probe", "reach", counter)
    assert countlens("probe", "reach", counter, "--csv").startswith("reach,untrained\n")
    countlens("report", counter, "--probes", "reach", "--out", tmp_path, "--quiet")
    assert "Right answers before the first mistake" in (tmp_path / "report.html").read_text()
    report = json.loads((tmp_path / "report.json").read_text())
    assert "It counts" in report["probes"]["reach"]["results"][counter]["verdict"]["sentence"]


def test_the_page_draws_the_counter_and_gives_the_code(
    open_page: Callable[..., Any], figures: Callable[[Any], list[dict[str, Any]]]
) -> None:
    page = open_page(SHIPPED, "reach", counter=shipped("mod10/lstm-1L"), rows="32")
    assert page.title[0].value == "Reach"
    (figure,) = figures(page)
    assert "It counts" in figure["layout"]["meta"]["alt"]
    assert any("reach(counter, rows=32)" in block.value for block in page.code)
