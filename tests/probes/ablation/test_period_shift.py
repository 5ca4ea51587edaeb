"""Clusters that cause the answers are found; clusters that nothing reads, and straight lines, are not."""

import math

import pytest
import torch
from planted_counters import modulo_five_counter, token_counter

from models import TransformerConfig, build_counter, load_counter
from models.families import config_to_dict
from models.header import CheckpointInfo
from models.transformer import Transformer
from models.transformer_block import Block
from probes.ablation.period_shift import PeriodShift, period_shift
from probes.mechanism.handbuilt import handbuilt_counter
from probes.reading.mod_pca import mod_pca
from probes.result import NotApplicable
from probes.sites import Site
from training.tasks import make_task, task_settings

MOD10, WITH_BOS = make_task("mod10"), make_task("mod10", bos=True)
IDLE = 10  # columns


def with_idle_clusters(counter: Transformer, ones: tuple[int, int, int]) -> Transformer:
    """The same counter with PID modulo 10 in columns of their own, as large as the rest, that nothing reads.

    They are there with both signs, so that a norm's mean stays 0; `ones` is how many variables of length 1 each norm
    sees, for its gain.
    """
    wide = Transformer(TransformerConfig(**(config_to_dict(counter.cfg) | {"d_model": counter.cfg.d_model + 2 * IDLE})))
    for parameter in wide.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        for name, parameter in wide.named_parameters():
            old = dict(counter.named_parameters())[name]
            parameter[tuple(map(slice, old.shape))] = old
        residue = torch.eye(IDLE)[torch.arange(wide.cfg.max_position) % IDLE]
        wide.pos_embed.W_pos[:, -2 * IDLE :] = torch.cat([residue, -residue], 1)
        block = wide.blocks[0]
        assert isinstance(block, Block)
        for norm, number in zip((block.ln1, block.ln2, wide.ln_final), ones, strict=True):
            torch.nn.init.constant_(norm.w, math.sqrt(2 * (number + 1) / wide.cfg.d_model + wide.cfg.eps))
    wide.info = counter.info
    return wide.eval()


@pytest.fixture(scope="module")
def planted() -> PeriodShift:
    return period_shift(handbuilt_counter("first_position", WITH_BOS), rows=16)


def test_planted_clusters_are_a_cause_and_subtracted(planted: PeriodShift) -> None:
    for kind in ("own", "others", "all"):
        assert planted.best(kind).share.value == 1, kind
    assert planted.headline.label == "Clusters by PID are a cause"
    removed = next(one for one in planted.outcomes if (one.kind, one.place) == ("removed", "L0 resid_pre"))
    assert removed.share.value < 0.3


def test_the_answer_is_told_from_the_pid(planted: PeriodShift) -> None:
    by_place = {(one.place, one.code): one for one in planted.outcomes if one.kind == "own"}
    assert by_place["L0 resid_post", "answer"].share.value == 1
    assert by_place["L0 resid_post", "pid"].share.value == 0
    assert by_place["L0 resid_pre", "pid"].share.value == 1
    assert by_place["L0 resid_pre", "answer"].share.value == 0


def test_a_straight_line_over_positions_is_no_cluster() -> None:
    """Class means of PIDs 3, 13, 23, ... grow with the residue: shifting those would move every answer as predicted."""
    found = period_shift(handbuilt_counter("mean_position", MOD10), rows=16)
    assert found.right == 1
    assert found.headline.label == "Clusters by PID are no cause"
    assert found.best("own").share.value == 0
    assert next(one for one in found.outcomes if one.place == "L0 resid_pre").variance < 0.01


def test_clusters_that_nothing_reads_are_no_cause() -> None:
    counter = with_idle_clusters(handbuilt_counter("mean_position", MOD10), (2, 2, 3))
    (drawn,) = mod_pca(counter, sites=[Site("resid_pre", 0)]).sites
    assert drawn.period == 10  # a picture shows them
    found = period_shift(counter, rows=16)
    assert found.right == 1
    at_input = next(one for one in found.outcomes if one.place == "L0 resid_pre")
    assert at_input.variance > 0.3
    assert at_input.share.value == 0
    assert found.headline.label == "Clusters by PID are no cause"
    assert found.best("own").share.value == 0


def test_clusters_beside_tokens_that_are_counted_are_no_cause() -> None:
    found = period_shift(token_counter(WITH_BOS), rows=16)
    assert found.right == 1
    assert found.headline.label == "Clusters by PID are no cause"
    assert found.best("own").share.value == 0


def test_clusters_modulo_five_are_a_cause_in_part_of_counting_modulo_ten() -> None:
    """Shifts by an even number of places move its answers as claimed, the others by five places too few."""
    found = period_shift(modulo_five_counter(WITH_BOS), rows=32)
    assert found.headline.label != "Clusters by PID are a cause"
    assert found.best("own").share.value < 0.7
    assert "of answers that are right with nothing moved" in found.verdict.sentence


def test_trained_counters() -> None:
    ape = period_shift(load_counter("mod10/ape-2L"), rows=24)
    assert ape.headline.label == "Clusters by PID are a cause"
    assert ape.verdict.agrees is True
    spe = period_shift(load_counter("mod10/spe-2L"), rows=24)
    assert spe.headline.label == "Clusters by PID are no cause"
    frame = ape.to_frame()
    assert {"place", "kind", "code", "variance", "value", "control_value"} <= set(frame.columns)
    assert len(frame) == len(ape.outcomes)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("mod10/rnn-1L", "no position ids"), ("mod10/rope-1L", "little that could move"), ("helper/rope-2L", "modular")],
)
def test_counters_that_it_makes_no_sense_for(name: str, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        period_shift(load_counter(name), rows=4)


@pytest.mark.parametrize("draws", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_untrained_counters_seldom_have_a_cause(draws: int) -> None:
    """With three answers a third is right by chance, so that there is something to judge."""
    task = make_task("mod3", train_length=8, ood_length=14)
    alarms = []
    for seed in range(draws):
        config = TransformerConfig(task.vocab.size, "ape", n_layers=1, d_model=8, n_heads=1, max_position=20)
        counter = build_counter(config, torch.Generator().manual_seed(seed)).eval()
        counter.info = CheckpointInfo("transformer", {}, task=task_settings(task), policy="shifted")
        try:
            alarms.append(period_shift(counter, rows=16, seed=seed).headline.label != "Clusters by PID are no cause")
        except NotApplicable:
            alarms.append(False)
    assert sum(alarms) <= 0.05 * draws
