"""A family is its file, one entry and its recipe: a GRU keeps every promise, and everything knows it."""

import json
import runpy
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from app.explorer.registry import PAGES
from models import build_counter, hook_name, load_counter
from models.families import FAMILIES
from models.recurrent import Recurrent
from probes.registry import PROBES

PROMISES = runpy.run_path(str(Path(__file__).parents[1] / "models/test_recurrent.py"))


@pytest.mark.parametrize("promise", [name for name in PROMISES if name.startswith("test_")])
def test_it_keeps_the_promises_of_every_recurrent_family(promise: str, tmp_path: Path) -> None:
    test = PROMISES[promise]
    test(family="gru", **({"tmp_path": tmp_path} if "tmp_path" in signature(test).parameters else {}))


def test_both_paths_give_the_numbers_of_torchs_gru() -> None:
    cfg = FAMILIES["gru"].config(11, n_layers=2, d_model=12, embed_std=1.0)
    counter = build_counter(cfg, torch.Generator().manual_seed(0)).double().eval()
    assert isinstance(counter, Recurrent)
    oracle = nn.GRU(12, 12, num_layers=2, batch_first=True).double()
    for layer, block in enumerate(counter.blocks):
        for name, parameter in block.mixer.cell.named_parameters():
            oracle.get_parameter(name.replace("_l0", f"_l{layer}")).data.copy_(parameter)
    token_ids = torch.randint(11, (3, 15), generator=torch.Generator().manual_seed(1))
    states, _ = oracle(counter.embed(token_ids))
    opened, cache = counter.run_with_cache(token_ids, torch.zeros_like(token_ids))
    torch.testing.assert_close(cache[hook_name("state", 1)], states, atol=1e-12, rtol=0)
    torch.testing.assert_close(opened, states @ counter.W_U, atol=1e-12, rtol=0)
    torch.testing.assert_close(counter(token_ids, torch.zeros_like(token_ids)), opened, atol=1e-12, rtol=0)


def test_it_learns_and_is_listed_and_scored(runs: Path, countlens: Callable[..., str]) -> None:
    (line,) = json.loads(countlens("list", runs, "--json"))
    assert (line["name"], line["family"], line["scheme"]) == ("parity/gru", "gru", "gru")
    assert line["ind"] > 99
    assert json.loads(countlens("eval", runs / "parity/gru", "--json"))["ood"] > 95
    assert type(load_counter(runs / "parity/gru")) is FAMILIES["gru"].counter


def test_its_runs_do_not_disturb_the_papers_tables(runs: Path, countlens: Callable[..., str]) -> None:
    tables = countlens("tables", "--runs", runs, "--json")
    assert len(json.loads(tables)) > 1
    assert "gru" not in tables


def test_a_grid_with_it_is_estimated(tmp_path: Path, countlens: Callable[..., str]) -> None:
    axes = ("--task", "mod10", "--architecture", "gru", "--lengths", "5to10", "--seeds", 2)
    estimate = countlens("sweep", *axes, "--out", tmp_path, "--dry-run")
    assert "2 runs" in estimate
    assert "FLOPs" in estimate


@pytest.mark.parametrize(
    "probes", [("mechanism", "attention"), pytest.param(tuple(PROBES), marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_probes_read_it_or_say_why_not(
    probes: tuple[str, ...], runs: Path, tmp_path: Path, countlens: Callable[..., str]
) -> None:
    said = countlens("report", runs / "parity/gru", "--out", tmp_path, "--quiet", "--probes", *probes)
    assert "no mechanism is stated for parity" in said
    assert "GRU has no attention scores" in said
    assert all(PROBES[probe].title in said for probe in probes)


def test_the_zoo_shows_it(
    runs: Path, open_page: Callable[..., Any], figures: Callable[[Any], list[dict[str, Any]]]
) -> None:
    zoo = open_page(runs, "zoo", drawn="true")
    (table,) = [html.proto.body for html in zoo.get("html") if "<table" in html.proto.body]
    assert "<th scope='col'>gru</th>" in table
    assert "<th scope='row'>parity<br>1 layer" in table
    assert "counter=parity%2Fgru" in table
    assert "gru" in figures(zoo)[0]["layout"]["xaxis"]["ticktext"]


@pytest.mark.slow  # its quick siblings are the Zoo here and the page of behaviour in test_task.py
@pytest.mark.parametrize("path", [path for path, page in PAGES.items() if page.of_counter])
def test_every_page_draws_it_or_says_why_not(
    path: str, runs: Path, open_page: Callable[..., Any], figures: Callable[[Any], list[dict[str, Any]]]
) -> None:
    page = open_page(runs, path, counter="parity/gru", drawn="true")
    assert figures(page) or page.info
