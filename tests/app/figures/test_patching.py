"""Figures and page of patching: what is drawn is the result, around 0, and a sentence says it."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from app.cli import main
from app.figures.patching import patching_caption, patching_figure
from app.figures.registry import figures_of
from models import save_counter
from probes.mechanism.handbuilt import handbuilt_counter
from probes.patching.engine import PatchGrid
from probes.patching.pairs import PairPatching
from training.tasks import make_task


def grid(axes: Mapping[str, tuple[int, ...]], clean: float = 1.0, corrupted: float = 0.0, rows: int = 2) -> PatchGrid:
    """A metric that rises from cell to cell, from 0 to less than 1."""
    shape = tuple(map(len, axes.values()))
    values = np.arange(np.prod(shape), dtype=float).reshape(shape) / np.prod(shape)
    by_row = np.stack([values - 0.1, values + 0.1], -1)[..., :rows]
    unpatched = (np.full(rows, clean), np.full(rows, corrupted))
    return PatchGrid("z", "probability", "denoise", dict(axes), by_row, np.ones(rows), *unpatched)


LAYERS, POSITIONS, HEADS = (0, 1), (0, 1, 2), (0, 1, 2, 3)
GRIDS = {
    "resid_pre": grid({"layer": LAYERS, "pos": POSITIONS}),
    "head_z": grid({"layer": LAYERS, "head": HEADS}),
    "z": grid({"layer": LAYERS, "pos": POSITIONS, "head": HEADS}),
    "embed": grid({"pos": POSITIONS}),
}


def patching(grids: dict[str, PatchGrid], changes: tuple[str, ...] = ("start", "labels")) -> PairPatching:
    return PairPatching("start", changes, ("tokens",), "probability", "denoise", 2, 0, grids)


@pytest.mark.parametrize("site", ["resid_pre", "head_z"])
def test_layers_are_rows_and_positions_or_heads_columns(site: str) -> None:
    figure = patching_figure(patching(GRIDS), site)
    (drawn,) = figure.data
    np.testing.assert_array_equal(drawn.z, GRIDS[site].effect)
    assert list(drawn.y) == ["layer 0", "layer 1"]
    assert list(drawn.x) == list(POSITIONS if site == "resid_pre" else HEADS)


def test_three_axes_are_a_panel_a_layer_with_heads_down() -> None:
    figure = patching_figure(patching(GRIDS), "z")
    assert [note.text for note in figure.layout.annotations] == ["layer 0", "layer 1"]
    for layer, drawn in enumerate(figure.data):
        np.testing.assert_array_equal(drawn.z, GRIDS["z"].effect[layer].T)
        assert list(drawn.y) == ["head 0", "head 1", "head 2", "head 3"]
        assert drawn.text[3, 1].startswith(f"layer {layer}, pos 1, head 3<br>")


def test_a_site_without_layers_is_one_row() -> None:
    (drawn,) = patching_figure(patching(GRIDS), "embed").data
    assert list(drawn.y) == ["embed"]
    np.testing.assert_array_equal(drawn.z, [GRIDS["embed"].effect])


def test_colours_are_around_zero_and_the_same_for_every_site() -> None:
    result = patching(GRIDS)
    for site in GRIDS:
        colours = patching_figure(result, site).layout.coloraxis
        assert colours.cmid == 0
        assert colours.cmax == -colours.cmin == GRIDS["z"].effect.max()
    still = {"embed": grid({"pos": POSITIONS}, clean=0.5, corrupted=0.5)}
    assert patching_figure(patching(still, ("shift",)), "embed").layout.coloraxis.cmax == 0.5


def test_a_cell_says_its_value_with_its_error_and_what_it_moves() -> None:
    drawn = patching_figure(patching(GRIDS), "resid_pre").data[0]
    assert drawn.text[1, 2] == "layer 1, pos 2<br>probability 0.833 ± 0.100<br>share +0.833"
    alone = {"embed": grid({"pos": POSITIONS}, 0.5, 0.5, rows=1)}
    drawn = patching_figure(patching(alone, ("shift",)), "embed").data[0]
    assert drawn.text[0, 0] == "pos 0<br>probability -0.100<br>change -0.600"


def test_positions_that_are_left_out_leave_no_wide_cells() -> None:
    some = {"resid_pre": grid({"layer": (1,), "pos": (0, 7)})}
    assert patching_figure(patching(some), "resid_pre").layout.xaxis.type == "category"
    assert patching_figure(patching(GRIDS), "resid_pre").layout.xaxis.type == "linear"


def test_every_site_has_a_figure_with_its_finding_in_words() -> None:
    result = patching(GRIDS)
    figures = figures_of(result)
    assert list(figures) == [patching_caption(result, site) for site in GRIDS]
    for site, figure in zip(GRIDS, figures.values(), strict=True):
        assert result.finding(site) in figure.layout.meta["alt"]
    assert "Share of the difference in probability that a patch of z makes, by layer and position and head" in figures


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A hand-built counter that keeps the shift at its first token."""
    path = tmp_path_factory.mktemp("counter") / "model.safetensors"
    counter = handbuilt_counter("first_position", make_task("mod10", bos=True, train_length=12, ood_length=24))
    save_counter(path, counter, counter.info)
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    main(["patch", *map(str, args)])
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["patch", *map(str, args)])
    assert exit_.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    return captured.err


def test_the_command_says_what_was_found_site_by_site(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, checkpoint, "--pair", "shift", "--sites", "resid_pre,head_z").splitlines()
    assert lines == [
        "The pair shift changes shift and positions and holds bos, length, tokens and labels: "
        "accuracy is 1 clean and 1 corrupted.",
        "A patch of resid_pre changes accuracy most at layer 0 pos 0 (-1.00).",
        "A patch of head_z changes accuracy most at layer 0 head 0 (-1.00).",
    ]
    assert printed(capsys, checkpoint) == "\n".join(lines) + "\n"


def test_scripts_get_json_or_a_table(checkpoint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [checkpoint, "--sites", "resid_pre", "head_z", "--length", 8, "--batch", 3, "--seed", 5]
    found = json.loads(printed(capsys, *options, "--json"))
    assert (found["rows"], found["seed"], list(found["sites"])) == (3, 5, ["resid_pre", "head_z"])
    assert len(found["sites"]["resid_pre"]["value"][0]) == 9
    (tmp_path / "found.csv").write_text(printed(capsys, *options, "--csv"))
    table = pd.read_csv(tmp_path / "found.csv")
    np.testing.assert_allclose(table["change"][:9], found["sites"]["resid_pre"]["change"][0])
    few = json.loads(printed(capsys, checkpoint, "--sites", "resid_pre", "--layer", 0, "--pos", 1, 4, "--json"))
    assert few["sites"]["resid_pre"]["axes"] == {"layer": [0], "pos": [1, 4]}


def test_metric_and_direction_can_be_chosen(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--metric", "kl", "--direction", "denoise", "--pair", "bos_replaced", "--json"]
    found = json.loads(printed(capsys, checkpoint, *chosen))
    assert (found["pair"], found["metric"], found["direction"]) == ("bos_replaced", "kl", "denoise")
    assert found["clean"] == pytest.approx(0, abs=1e-6)
    assert found["sites"]["resid_pre"]["share"][0][0] == pytest.approx(1, abs=1e-4)


def test_the_page_is_one_file_with_a_figure_a_site(
    checkpoint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "new" / "patching.html"
    assert printed(capsys, checkpoint, "--html", path, "--sites", "resid_pre", "z") == f"wrote {path}\n"
    page = path.read_text()
    assert page.count("<figure ") == 2
    assert "A patch of resid_pre changes accuracy most at layer 0 pos 0 (-1.00)." in page
    assert "src=" not in page.split("</script>")[-1]


def test_what_cannot_be_done_is_one_line(checkpoint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "exclude each other" in refused(capsys, checkpoint, "--json", "--csv")
    assert "exclude each other" in refused(capsys, checkpoint, "--json", "--html", tmp_path / "page.html")
    assert "is a folder: name a file" in refused(capsys, checkpoint, "--html", tmp_path)
    assert "did you mean shift" in refused(capsys, checkpoint, "--pair", "shft")
    assert "take swap, start, shift or bos_replaced" in refused(capsys, checkpoint, "--pair", "bos_dropped")
    assert "did you mean resid_pre" in refused(capsys, checkpoint, "--sites", "resid_prae")
    assert "pos cannot be chosen" in refused(capsys, checkpoint, "--sites", "head_z", "--pos", 1)
    assert "unknown metric 'logits'" in refused(capsys, checkpoint, "--metric", "logits")
    assert "unknown checkpoint" in refused(capsys, "mod10/nothing")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("site", GRIDS)
def test_a_cell_knows_where_it_is_for_whoever_clicks_on_it(site: str) -> None:
    axes = GRIDS[site].axes
    for drawn in patching_figure(patching(GRIDS), site).data:
        effects = np.array(drawn.z).ravel()
        places = [place for row in drawn.customdata for place in row]
        for effect, place in zip(effects, places, strict=True):
            index = tuple(values.index(at) for values, at in zip(axes.values(), place, strict=True))
            assert GRIDS[site].effect[index] == effect
