"""Seeds: those of a cell of the zoo, with their scores, their weights or the command that makes them."""

import re
import shlex
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shipped import shipped

from app.cli import main
from app.explorer import cache
from app.explorer.catalogue import Catalogue, read_catalogue, start_folders
from app.explorer.seeds import cells_of, median_of, read_all_scores, seeds_of, train_command, train_options
from app.figures.seeds_table import seeds_table
from app.figures.spread import accuracy_spread, score_spread
from models.checkpoint import load_counter
from models.find import SHIPPED
from probes.reading.behaviour import behaviour
from probes.reading.mod_pca import mod_pca
from probes.sites import Site
from training.paper.score_table import read_scores
from training.presets import resolve, run_name
from training.sweep.grid import expand

CELL = "mod10/ape-2L"
ROWS = [row for row in read_scores(SHIPPED / "scores.csv") if row.cell == CELL]


@pytest.fixture
def catalogue() -> Catalogue:
    return read_catalogue(start_folders([]))


@pytest.fixture
def second_seed(more_counters: Path) -> Any:
    """A counter of another seed beside the shipped one."""
    source = SHIPPED / shipped("mod10/spe-2L")
    target = more_counters / "mod10/spe-2L/seed7"
    shutil.copytree(source, target)
    cache.catalogue.clear()  # it is looked at again only after some seconds
    yield "mod10/spe-2L/seed7"
    shutil.rmtree(more_counters / "mod10")
    cache.catalogue.clear()


def test_a_cell_has_every_seed_that_was_scored_and_the_weights_that_ship(catalogue: Catalogue) -> None:
    rows = read_all_scores(catalogue)
    seeds = seeds_of(CELL, rows, catalogue.sound)
    assert [seed.name for seed in seeds] == [f"{CELL}/seed{number}" for number in range(len(ROWS))]
    assert [seed.name for seed in seeds if seed.entry] == [shipped(CELL)]
    assert [seed.best.ood for seed in seeds if seed.best] == [row.ood for row in ROWS]
    middle = median_of(seeds)
    assert middle is not None
    assert middle.ood == np.median([row.ood for row in ROWS])
    assert CELL in cells_of(rows, [])


def test_a_seed_without_a_score_table_speaks_for_itself(catalogue: Catalogue) -> None:
    (seed,) = seeds_of(CELL, [], catalogue.sound)
    assert seed.best is not None
    assert seed.best.ood == pytest.approx(max(row.ood for row in ROWS), abs=0.2)
    assert seed.command is None
    assert median_of([]) is None


def test_the_command_of_a_missing_seed_trains_a_run_of_that_name() -> None:
    for row in read_scores(SHIPPED / "scores.csv"):
        (run,) = expand([train_options(row)])
        assert run.name == row.name
        model, steps = run.config.model, run.config.optimiser.steps
        assert (model.d_model, model.causal, steps) == (row.width, row.causal, row.steps)
    missing = [seed for seed in seeds_of(CELL, ROWS, []) if seed.command]
    assert len(missing) == len(ROWS)
    assert missing[3].command == train_command(ROWS[3])
    assert "--task mod10 --position ape --n-layers 2" in train_command(ROWS[3])


def test_the_command_is_one_that_the_command_line_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row.name: row for row in read_scores(SHIPPED / "scores.csv")}
    heard: list[Any] = []
    monkeypatch.setattr("app.commands.train.run_training", lambda config, *rest, **more: heard.append(config))
    for name in ("mod10-bos/rope-2L/seed1", "mod10/rwkv6-1L/seed1", "first_tok_heterogeneous/nope-1L-noncausal/seed1"):
        main(shlex.split(train_command(rows[name]))[1:])
        assert run_name(resolve(heard[-1])) == name


def test_the_table_links_what_is_here_and_escapes_names(catalogue: Catalogue) -> None:
    table = seeds_table(seeds_of(CELL, ROWS, catalogue.sound))
    assert table.count("here: look at it") == 1
    assert table.count("not here") == len(ROWS) - 1
    numbers = ", ".join(str(row.seed) for row in ROWS if row.name != shipped(CELL))
    assert f"To make seed {numbers}: <code>countlens train" in table
    assert f"median of {len(ROWS)}" in table
    hostile = seeds_of("<img>", [], [])
    assert seeds_table(hostile).count("<tr>") == 1


def test_a_cell_of_the_zoo_opens_its_seeds_beside_the_papers(open_page: Callable[..., Any]) -> None:
    app = open_page("zoo")
    bodies = [unescape(element.proto.body) for element in app.get("html")]
    (grid,) = [body for body in bodies if "class='zoo'" in body]
    assert f'href="./?cell=mod10%2Fape-2L" target="_self">{len(ROWS)} seeds</a>' in grid
    opened = open_page("zoo", cell=CELL)
    (table,) = [unescape(e.proto.body) for e in opened.get("html") if "class='seeds'><table" in e.proto.body]
    assert len(re.findall("<tr>", table)) == 1 + len(ROWS) + 3  # head, seeds, our median, the paper's best and median
    assert "the paper's best</td><td class='number'>100 / 100" in table
    assert "the paper's median</td><td class='number'>100 / 99.5" in table


def test_pages_show_the_spread_over_the_seeds_that_are_here(
    second_seed: str, open_page: Callable[..., Any], figures: Callable[[Any], list[Any]]
) -> None:
    app = open_page("behaviour", counter=second_seed)
    alone = len(figures(app))
    app.toggle(key="seeds").set_value(True).run()
    assert not app.exception
    shown = figures(app)
    assert len(shown) == alone + 1
    assert "2 counters that differ in their seed" in shown[-1]["layout"]["meta"]["alt"]
    assert [line["name"] for line in shown[-1]["data"]][-2:] == ["seed7", "median"]
    assert len(shown[-1]["data"]) == 3  # two seeds and their median
    scores = figures(open_page("pid-pca", counter=second_seed, seeds="true"))
    assert "differ in their seed" in scores[-1]["layout"]["meta"]["alt"]
    assert "seeds" not in [toggle.key for toggle in open_page("behaviour", counter=shipped(CELL)).toggle]


def test_the_median_of_seeds_is_that_of_their_lines() -> None:
    names = ("mod10/ape-2L", "mod10/spe-2L", "mod10/sine-2L")
    results = [behaviour(load_counter(name), rows=4) for name in names]
    figure = accuracy_spread(*results, names=names)
    *lines, middle = [trace for trace in figure.data if trace.y is not None]
    table = np.array([line.y for line in lines], float)
    scored = ~np.isnan(table).all(0)
    np.testing.assert_allclose(np.array(middle.y, float)[scored], np.nanmedian(table[:, scored], axis=0))
    assert scored.sum() > 90
    site = Site("resid_post", 0)
    periods = [mod_pca(load_counter(name), sites=(site,), permutations=20) for name in names]
    *scores, middle = score_spread(*periods, names=names, site=site).data
    assert list(scores[0].y) == [float(score) for score in periods[0].at(site).periods.scores]
    np.testing.assert_allclose(middle.y, np.median([line.y for line in scores], axis=0))
