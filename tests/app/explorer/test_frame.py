"""The explorer's frame: which files it reads, the zoo's grid, and what sessions share."""

import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from shipped import shipped

from app.cli import main
from app.commands.explore import streamlit_command
from app.explorer.cache import open_counter
from app.explorer.catalogue import Catalogue, Entry, read_catalogue, start_folders
from app.explorer.zoo import zoo_grid
from app.figures.zoo import zoo_figure
from app.figures.zoo_table import LOOKS, zoo_table
from models.counter import Counter
from models.errors import CountLensError
from models.find import CHECKPOINT, SHIPPED
from models.header import CheckpointInfo
from training.paper.score_table import SCORES, read_scores

MODEL = {"position": "ape", "n_layers": 2, "d_model": 64, "n_heads": 4}
LSTM = shipped("mod10/lstm-1L")
TASK = {"name": "mod10", "train_length": 50, "ood_length": 100}


@pytest.fixture
def catalogue(more_counters: Path) -> Catalogue:
    return read_catalogue(start_folders([more_counters]))


def entry(name: str, ind: float, ood: float, task: dict[str, Any] = TASK, **model: object) -> Entry:
    info = CheckpointInfo("transformer", MODEL | model, task, "shifted", scores={"ind": float(ind), "ood": float(ood)})
    return Entry(name, Path(name), name, info)


def test_the_catalogue_names_counters_by_folder_and_broken_ones_with_a_reason(catalogue: Catalogue) -> None:
    assert catalogue.default == shipped("mod10/ape-2L")
    assert {"sound", LSTM} <= {entry.name for entry in catalogue.sound}
    assert {entry.name: entry.broken for entry in catalogue.broken} == {
        "cut": "model.safetensors is truncated (5000 bytes): copy or train it again",
        "foreign": catalogue.entries["foreign"].broken,
    }


def test_a_name_that_is_taken_is_led_by_its_folder(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / "mod10/lstm-1L", tmp_path / "mine/mod10/lstm-1L")
    names = read_catalogue(start_folders([tmp_path / "mine"])).entries
    assert {LSTM, f"mine/{LSTM}"} <= names.keys()
    assert names[LSTM].path.is_relative_to(SHIPPED)


def test_no_folder_outside_of_the_explorers_own_is_looked_at(catalogue: Catalogue, tmp_path: Path) -> None:
    (catalogue.folders[-1] / "way-out").symlink_to(tmp_path)
    shutil.copytree(SHIPPED / "mod10/lstm-1L", tmp_path / "secret")
    try:
        for typed in (str(tmp_path), "/etc", "../..", "way-out", "mod10/../../.."):
            with pytest.raises(CountLensError, match="countlens explore --folder"):
                catalogue.below(typed)
        assert f"way-out/secret/{Path(LSTM).name}" not in read_catalogue(catalogue.folders).entries
    finally:
        (catalogue.folders[-1] / "way-out").unlink()
    assert {name.split("/")[0] for name in catalogue.below("mod10").entries} == {"mod10"}


def test_a_file_that_points_outside_is_broken(tmp_path: Path) -> None:
    (tmp_path / "mine/link").mkdir(parents=True)
    shutil.copy(SHIPPED / LSTM / CHECKPOINT, tmp_path / "outside.safetensors")
    (tmp_path / "mine/link/model.safetensors").symlink_to(tmp_path / "outside.safetensors")
    found = read_catalogue(((tmp_path / "mine").resolve(),)).entries["link"]
    assert found.info is None
    assert "points outside" in (found.broken or "")


def test_the_grid_has_the_best_of_each_cell_beside_the_papers_numbers() -> None:
    grid = zoo_grid(
        [entry("a", 100, 50), entry("b", 100, 99), entry("c", 100, 99, position="nope"), entry("d", 12, 12, n_layers=7)]
    )
    assert [(cell.counter, cell.others, cell.standing) for cell in grid.cells] == [
        ("c", 0, "differs from the paper"),  # where nope does not even fit
        ("b", 1, "goes on, as in the paper"),
        ("d", 0, "not in the paper"),
    ]
    assert [experiment.label for experiment in grid.experiments] == ["mod10, 2 layers", "mod10, 7 layers"]
    assert zoo_grid([entry("a", 100, 50, TASK | {"bos": True})]).experiments[0].bos


def test_scores_without_weights_fill_cells_that_have_no_counter() -> None:
    rows = [row for row in read_scores(SHIPPED / SCORES) if row.cell in ("mod10/ape-2L", "mod10/lstm-1L")]
    grid = zoo_grid([entry("mine", 100, 50)], rows)
    assert [(cell.counter.rpartition("/")[0], cell.here) for cell in grid.cells] == [
        ("mod10/lstm-1L", False),
        ("", True),
    ]
    alone = grid.cells[0]
    scored = [row for row in rows if row.cell == "mod10/lstm-1L"]
    assert (sum(alone.ours), alone.others + 1) == (max(row.ind + row.ood for row in scored), len(scored))
    table = zoo_table(grid)
    assert 'href="./?cell=mod10%2Flstm-1L"' in table
    assert table.count("behaviour?counter=") == 1
    assert "scores alone" in table
    assert "scores alone" not in zoo_table(zoo_grid([entry("mine", 100, 50)]))


def test_the_zoos_picture_says_by_sign_what_it_says_by_colour() -> None:
    nope = {"position": "nope"}
    grid = zoo_grid([entry("a", 100, 98.6), entry("b", 10, 11.7, **nope), entry("c", 100, 99, n_layers=4, **nope)])
    figure = zoo_figure(grid)
    points = {
        data.partition("<br>")[0]: (text, trace.marker.color)
        for trace in figure.data
        for data, text in zip(trace.customdata, trace.text, strict=True)
    }
    assert points["a"] == ("100 / 98.6<br>✓", LOOKS["goes on, as in the paper"][0])
    assert points["b"] == ("10.0 / 11.7<br>·", LOOKS["ends, as in the paper"][0])
    assert points["c"] == ("100 / 99.0<br>≠", LOOKS["differs from the paper"][0])
    assert len(points) == len(grid.cells) == len(figure.layout.shapes) == 3


def test_the_zoos_table_links_every_counter_and_escapes_its_name() -> None:
    table = zoo_table(zoo_grid([entry("a<b>&c/d", 100, 50), entry("e", 12, 12, position="nope")]))
    assert 'href="behaviour?counter=a%3Cb%3E%26c%2Fd"' in table
    assert "a&lt;b&gt;&amp;c/d" in table
    assert "<b>" not in table
    assert table.count("<td><a") == 2
    assert f'style="background: {LOOKS["ends, as in the paper"][0]}">12.0 / 12.0<br>·' in table


def slow_square(counter: Counter, number: int) -> int:
    """Notes how many run at once on a counter."""
    ACTIVE.append(threading.get_ident())
    time.sleep(0.05)
    CROWDS.append(len(ACTIVE))
    ACTIVE.pop()
    return number**2


ACTIVE: list[int] = []
CROWDS: list[int] = []


def test_a_result_is_computed_once_for_all_and_one_at_a_time_on_a_counter(catalogue: Catalogue) -> None:
    subject = open_counter(catalogue.entries[LSTM])
    assert subject is open_counter(catalogue.entries[LSTM])
    CROWDS.clear()
    with ThreadPoolExecutor(8) as sessions:
        found = list(sessions.map(lambda number: subject.call(slow_square, number=number % 3).value, range(12)))
    assert found == [0, 1, 4] * 4
    assert CROWDS == [1, 1, 1]


def test_another_file_under_the_same_name_is_another_counter(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED / LSTM, tmp_path / "mine")
    before = open_counter(read_catalogue((tmp_path,)).entries["mine"])
    shutil.copy(SHIPPED / shipped("mod10/rnn-1L") / CHECKPOINT, tmp_path / "mine/model.safetensors")
    after = open_counter(read_catalogue((tmp_path,)).entries["mine"])
    assert (before.architecture, after.architecture) == ("lstm", "rnn")


def test_what_has_no_name_cannot_be_kept(catalogue: Catalogue) -> None:
    subject = open_counter(catalogue.entries[LSTM])
    with pytest.raises(TypeError, match="define it in a module"):
        subject.call(lambda counter: 1)


def fail_at_first(counter: Counter) -> str:
    if not FAILED:
        FAILED.append(True)
        raise OSError("out of luck")
    return "well"


FAILED: list[bool] = []


def test_a_mishap_is_not_kept(catalogue: Catalogue) -> None:
    subject = open_counter(catalogue.entries[LSTM])
    with pytest.raises(OSError, match="out of luck"):
        subject.call(fail_at_first).value  # noqa: B018 - it is a call
    assert subject.call(fail_at_first).value == "well"


def test_explore_passes_its_options_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = streamlit_command(8600, (tmp_path,), browser=False)
    assert command[command.index("run") + 1].endswith("app/main.py")
    assert command[-3:] == ["--", "--folder", str(tmp_path)]
    assert command[-7:-3] == ["--server.port", "8600", "--server.headless", "true"]
    with pytest.raises(SystemExit):
        main(["explore", "--folder", str(tmp_path / "nothing")])
    assert "is no folder" in capsys.readouterr().err


def test_the_zoo_page_filters_by_folder_and_lists_broken_files(open_page: Any, figures: Any) -> None:
    app = open_page("zoo")
    assert [row[0] for row in app.table[0].value.itertuples(index=False)] == ["cut", "foreign"]
    everything = _linked(app)
    assert len(everything) > 40
    app.text_input(key="folder").input("mod10").run()
    assert {name.split("/")[0] for name in _linked(app)} == {"mod10"}
    app.toggle(key="drawn").set_value(True).run()
    assert len(figures(app)[0]["layout"]["shapes"]) == len(_linked(app))
    app.text_input(key="folder").input("/etc").run()
    assert "countlens explore --folder /etc" in app.warning[0].value
    assert _linked(app) == everything


def _linked(app: Any) -> list[str]:
    """The counters that the zoo's table links to."""
    tables = [element.proto.body for element in app.get("html") if "class='zoo'" in element.proto.body]
    return [unquote(name) for name in re.findall(r"behaviour\?counter=([^\"]+)", tables[0])]
