"""Patching between the rows of a pair: on counters of which it is known where they keep what the pair changes."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from models import FAMILIES, CheckpointInfo, CountLensError, build_counter
from models.counter import Counter
from probes.inputs.counterfactuals import PAIRS, counterfactual_pair
from probes.mechanism.handbuilt import handbuilt_counter
from probes.patching.engine import activation_patch
from probes.patching.pairs import USUAL_PAIRS, known_sites, pair_patch, usual_pair
from probes.result import NotApplicable
from training.batches import Batch
from training.tasks import Task, make_task, task_settings

LENGTH = 12
MOD10 = make_task("mod10", bos=True, train_length=LENGTH, ood_length=24)
SELECTIVE = make_task("selective", train_length=LENGTH, ood_length=24)


def lively(task: Task, family: str = "transformer", **settings: Any) -> Counter:
    """A counter of a task in which nothing is zero or one."""
    generator = torch.Generator().manual_seed(3)
    counter = build_counter(FAMILIES[family].config(task.vocab.size, n_layers=2, d_model=16, **settings), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    counter.info = CheckpointInfo("", {}, task=task_settings(task), policy="shifted")
    return counter.eval()


def test_a_counter_by_first_position_keeps_the_shift_at_its_first_token() -> None:
    """Its bos, moved, breaks every answer; any other token, moved, breaks its own alone."""
    found = pair_patch(handbuilt_counter("first_position", MOD10), sites=["resid_pre", "resid_mid", "head_z"])
    assert (found.pair, found.metric, found.direction) == ("shift", "accuracy", "noise")
    assert found.unpatched == (1, 1)
    assert not found.relative
    np.testing.assert_allclose(found.effect("resid_pre")[0], [-1, *[-1 / LENGTH] * LENGTH], atol=1e-6)
    # Behind attention every token has its own copy, and bos is not scored.
    np.testing.assert_allclose(found.effect("resid_mid")[0, 0], 0, atol=1e-6)
    np.testing.assert_allclose(found.effect("head_z"), [[-1]], atol=1e-6)
    assert "A patch of resid_pre changes accuracy most at layer 0 pos 0 (-1.00)." in found.verdict.sentence
    assert "A patch of head_z changes accuracy most at layer 0 head 0 (-1.00)." in found.verdict.sentence
    assert "No single patch of resid_mid changes accuracy by 0.1." in found.verdict.sentence


def test_a_counter_by_mean_position_keeps_it_in_every_token_so_far() -> None:
    found = pair_patch(handbuilt_counter("mean_position", MOD10), sites=["resid_pre"])
    effect = found.effect("resid_pre")[0]
    remaining = np.arange(LENGTH, 0, -1) / LENGTH
    assert (effect[1:] < -0.75 * remaining).all()


def test_a_bos_that_is_put_back_brings_all_answers_back() -> None:
    found = pair_patch(handbuilt_counter("first_position", MOD10), "bos_replaced", ["resid_pre", "embed", "head_z"])
    assert (found.metric, found.direction) == ("logit_diff", "denoise")
    assert found.relative
    for effect in (found.effect("resid_pre")[0], found.effect("embed")):
        assert effect[0] == pytest.approx(1, abs=1e-5)
        assert np.abs(effect[1:]).max() < 0.2
    np.testing.assert_allclose(found.effect("head_z"), [[1]], atol=1e-5)
    assert "brings back the difference in logit_diff most at layer 0 pos 0 (100%)" in found.verdict.sentence


@pytest.mark.parametrize("family", ["rnn", "lstm", "s4"])
def test_a_state_carries_a_swapped_token_on_and_not_back(family: str) -> None:
    counter = lively(SELECTIVE, family)
    pair = counterfactual_pair("swap", counter, 6, 1)
    (column,) = (pair.clean.token_ids != pair.corrupted.token_ids).any(0).nonzero().flatten().tolist()
    found = pair_patch(counter, batch=6, seed=1)
    assert (found.pair, list(found.grids)) == ("swap", ["resid_pre", "state_step"])
    inputs, states = found.effect("resid_pre")[0], found.effect("state_step")[0]
    np.testing.assert_allclose(np.delete(inputs, column), 0, atol=1e-4)
    np.testing.assert_allclose(states[:column], 0, atol=1e-4)
    assert inputs[column] == pytest.approx(1, abs=1e-4)
    assert np.abs(states[column:]).max() > 0.01


def test_grids_are_those_of_activation_patch() -> None:
    counter = lively(SELECTIVE, position="ape")
    pair = counterfactual_pair("swap", counter, 5, 2)
    clean, corrupted = (
        Batch(side.token_ids, side.position_ids, side.label_ids, torch.ones_like(side.token_ids) > 0, torch.ones(5))
        for side in (pair.clean, pair.corrupted)
    )
    found = pair_patch(counter, "swap", ["z", "head_q"], "probability", "noise", batch=5, seed=2, at=[-1])
    for site, kind, axes in (("z", "z", None), ("head_q", "q", ["layer", "head"])):
        grid = activation_patch(counter, clean, corrupted, kind, "probability", direction="noise", axes=axes, at=[-1])
        np.testing.assert_array_equal(found.grids[site].by_row, grid.by_row)
    np.testing.assert_array_equal(found.effect("z"), found.grids["z"].effect)


def test_axes_can_be_restricted_to_those_that_a_site_has() -> None:
    counter = lively(SELECTIVE, position="ape")
    found = pair_patch(counter, sites=["resid_post"], only={"layer": [1], "pos": [0, -1]})
    assert found.grids["resid_post"].axes == {"layer": (1,), "pos": (0, LENGTH - 1)}
    with pytest.raises(CountLensError, match="head_z is patched by layer and head: pos cannot be chosen"):
        pair_patch(counter, sites=["head_z"], only={"pos": [0]})


def test_a_task_s_scored_tokens_are_those_that_count() -> None:
    """In recognising the first token the answers at others do not."""
    counter = lively(make_task("first_tok_homogeneous", train_length=LENGTH, ood_length=24), position="ape")
    found = pair_patch(counter, sites=["resid_pre"], metric="probability")
    assert np.abs(found.effect("resid_pre")[:, 0]).max() > 1e-4
    np.testing.assert_allclose(found.effect("resid_pre")[:, 1:], 0, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "settings", "pair"),
    [
        (make_task("mod10"), {"position": "ape"}, "shift"),
        (make_task("mod10", bos=True), {"position": "sine"}, "shift"),
        (make_task("mod10", bos=True), {"position": "rope"}, "bos_replaced"),
        (make_task("mod10", bos=True), {"family": "lstm"}, "bos_replaced"),
        (make_task("shifted_start"), {"position": "nope"}, "start"),
        (make_task("helper_shifted"), {"family": "rnn"}, "start"),
        (make_task("selective", bos=True), {"position": "ape"}, "swap"),
        (make_task("vanilla_succession"), {"position": "spe"}, "shift"),
    ],
)
def test_a_counter_gets_a_pair_that_it_can_tell_apart(task: Task, settings: dict[str, Any], pair: str) -> None:
    found = usual_pair(lively(task, **settings), batch=2)
    assert found.name == pair
    assert found.same_length


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"position": "nope"}, "ignores position ids"), ({"position": "rope"}, "distances alone"), ({"family": "s4"}, "")],
)
def test_where_there_is_none_the_reasons_are_given(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotApplicable, match=f"no pair of equally long rows.*start: .*{reason}.*bos_replaced: "):
        pair_patch(lively(make_task("mod10"), **settings))


def test_the_usual_pairs_are_those_of_equal_length() -> None:
    for task in (make_task("selective", bos=True), make_task("shifted_start")):
        for name in PAIRS:
            try:
                pair = PAIRS[name](task, 128, 2, 0)
            except NotApplicable:
                continue
            assert pair.same_length == (name in USUAL_PAIRS)


def test_a_result_is_a_table_and_plain_numbers() -> None:
    found = pair_patch(lively(SELECTIVE, position="ape"), sites=["embed", "resid_pre", "head_z", "z"], batch=4)
    table = found.to_frame()
    assert list(table.columns) == ["pair", "site", "layer", "pos", "head", "value", "stderr", "change", "share"]
    sizes = {"embed": LENGTH, "resid_pre": 2 * LENGTH, "head_z": 8, "z": 8 * LENGTH}
    assert table.groupby("site").size().to_dict() == sizes
    assert table[table.site == "head_z"]["pos"].isna().all()
    line = table[(table.site == "z") & (table.layer == 1) & (table.pos == 3) & (table["head"] == 2)]
    assert line["value"].item() == found.grids["z"].values[1, 3, 2]
    assert line["share"].item() == found.effect("z")[1, 3, 2]
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["sites"]["head_z"]["axes"] == {"layer": [0, 1], "head": [0, 1, 2, 3]}
    assert plain["sites"]["resid_pre"]["value"][1][2] == pytest.approx(found.grids["resid_pre"].values[1, 2])
    assert plain["verdict"]["sentence"] == found.verdict.sentence
    assert plain["changes"] == ["tokens", "labels"]


def test_shares_are_left_out_where_labels_hold() -> None:
    found = pair_patch(lively(MOD10, position="ape"), "shift", ["resid_pre"], "probability", batch=1)
    assert found.unpatched[0] != pytest.approx(found.unpatched[1])
    assert pd.isna(found.to_frame()[["share", "stderr"]]).all(axis=None)
    assert found.to_dict()["sites"]["resid_pre"]["share"][0][0] is None


def test_runs_that_do_not_differ_are_compared_by_their_change() -> None:
    """A counter that does not look at tokens answers both rows of a swap alike."""
    counter = lively(SELECTIVE, position="ape")
    with torch.no_grad():
        counter.embed.W_E.zero_()
    found = pair_patch(counter, sites=["resid_pre"])
    assert not found.relative
    assert "No single patch of resid_pre changes logit_diff by 0.1." in found.verdict.sentence


def nothing(logits: Tensor) -> Tensor:
    return logits.sum((1, 2)) * torch.nan


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": "one_more"}, r"one_more have 12 and 13 tokens.*take swap, start, shift or bos_replaced"),
        ({"pair": "shif"}, "unknown pair 'shif': did you mean shift"),
        ({"pair": "start"}, "no start number"),
        ({"sites": ["head_resid_pre"]}, "unknown site 'head_resid_pre': did you mean .*All: .*head_z"),
        ({"sites": ["state"]}, "unknown site 'state'"),
        ({"metric": "logit_diff"}, "pair shift holds labels: take accuracy, probability or kl"),
        ({"metric": nothing}, "metric nothing gives nan"),
        ({"direction": "nose"}, "did you mean noise"),
        ({"batch": 0}, "at least 1 row"),
        ({"length": 1}, "at least 2 counted tokens"),
        ({"length": 200}, "give a smaller length"),
        ({"only": {"layer": [1]}}, r"layer 1 is outside 0..0"),
    ],
)
def test_what_cannot_be_patched_is_refused_with_what_can(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        pair_patch(handbuilt_counter("first_position", MOD10), **options)


def test_a_site_that_was_not_patched_is_named_with_those_that_were() -> None:
    found = pair_patch(handbuilt_counter("first_position", MOD10), sites=["resid_pre"])
    with pytest.raises(CountLensError, match=r"unknown patched site 'resid_mid': .*All: resid_pre"):
        found.effect("resid_mid")


def test_a_counter_that_has_diverged_is_skipped() -> None:
    counter = handbuilt_counter("first_position", MOD10)
    with torch.no_grad():
        counter.unembed.W_U.fill_(torch.nan)
    with pytest.raises(NotApplicable, match="diverged"):
        pair_patch(counter)


def test_every_site_with_heads_can_be_patched_by_head() -> None:
    sites = known_sites(lively(MOD10, position="rope"))
    by_head = [site for site in sites if site.startswith("head_")]
    assert by_head == ["head_q", "head_k", "head_v", "head_rot_q", "head_rot_k", "head_z", "head_pattern"]
    assert not any(site.startswith("head_") for site in known_sites(lively(MOD10, "lstm")))
