"""First-token recognition: counters that must and that cannot know, and trained ones next to the paper."""

import json

import numpy as np
import pytest
import torch

from models.checkpoint import load_counter
from models.config import LSTMConfig, TransformerConfig
from models.counter import Counter
from models.errors import CountLensError
from models.families import build_counter
from models.find import CHECKPOINT, SHIPPED
from models.header import CheckpointInfo, read_info
from probes.reading import first_token as module
from probes.reading.first_token import (
    FirstToken,
    Reading,
    SiteReadings,
    first_token_probe,
    first_token_score,
    own_pid_guess,
    read_sites,
    shifted_tokens,
)
from probes.result import NotApplicable
from probes.sites import Site
from training.tasks import Task, make_task, task_settings


def counter_for(task: Task, cfg: object = None, scores: dict[str, float] | None = None, **settings: object) -> Counter:
    """A small counter with fresh weights that says that it was trained on this task."""
    size = {"d_model": 16, "n_heads": 1, "n_layers": 1, "max_position": 128, "init_std": 0.3} | settings
    cfg = cfg or TransformerConfig(task.vocab.size, d_mlp=32, **size)
    counter = build_counter(cfg, torch.Generator().manual_seed(7)).eval()
    counter.info = CheckpointInfo("transformer", {}, task_settings(task), "shifted", scores=scores or {})
    return counter


MOD10, MIXED = make_task("mod10"), make_task("first_tok_heterogeneous")


@pytest.mark.parametrize("position", ["nope", "rope"])
def test_among_equal_tokens_nothing_is_known_where_nothing_is_added(position: str) -> None:
    result = first_token_probe(counter_for(MOD10, position=position))
    at = {found.site.kind: found.first.value for found in result.sites}
    assert at["resid_post"] == at["mlp_post"] == at["z"] == 0.5
    assert result.verdict.agrees is True
    assert "the first token is not read" in result.verdict.sentence


def test_the_causal_mask_alone_tells_the_first_of_different_tokens() -> None:
    causal = first_token_probe(counter_for(MIXED, position="nope"))
    blind = first_token_probe(counter_for(MIXED, position="nope", causal=False))
    assert causal.best_first.first.value > 0.85
    assert blind.best_first.first.value < 0.7


def test_the_same_counter_cannot_tell_the_first_of_equal_tokens() -> None:
    counter = counter_for(MIXED, position="nope")
    result = first_token_probe(counter, equal_tokens=True)
    assert result.best_first.first.value == 0.5
    assert result.claim is None
    tokens = shifted_tokens(counter, MIXED, seed=0, equal_tokens=True)
    inside = tokens.batch.attention_mask
    assert set(tokens.batch.token_ids[inside].tolist()) == set(MIXED.vocab.encode([MIXED.kinds[0]]))


def test_rows_of_equal_tokens_keep_what_the_task_puts_first() -> None:
    task = make_task("selective", bos=True)
    drawn, equal = (shifted_tokens(counter_for(task), task, 0, equal).batch for equal in (False, True))
    assert torch.equal(drawn.token_ids[:, : task.prefix], equal.token_ids[:, : task.prefix])
    assert len(equal.token_ids[:, task.prefix :][equal.attention_mask[:, task.prefix :]].unique()) == 1


def recogniser() -> Counter:
    """A counter whose only MLP unit is on where a token attends to itself alone: it compares its own position, read
    from the residual stream, with the mean position that attention brings."""
    counter = counter_for(MOD10, position="spe", d_model=4, init_std=0.0)
    block = counter.blocks[0]
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.zero_()
        counter.embed.W_E[:, 0] = 8.0  # large and constant, so that the norm hardly depends on the position
        block.ln1.w.fill_(1.0)
        block.ln2.w.fill_(1.0)
        block.attn.W_V[0, 3, 0] = 1.0
        block.attn.W_O[0, 0, 1] = 1.0
    return counter


def test_a_mean_over_positions_brings_the_shift_to_every_token() -> None:
    """Uniform attention over positions: with one's own PID the mean PID gives the first one's exactly."""
    result = first_token_probe(recogniser(), sites=[Site("resid_pre", 0), Site("attn_out", 0), Site("resid_mid", 0)])
    before, brought, both = (found.shift.value for found in result.sites)
    assert before < result.own_pid + 0.05
    assert brought > result.own_pid + 0.1
    assert both > 0.97
    assert "the shift is read beyond what a token's own PID tells" in result.verdict.sentence


def test_a_recurrent_counter_knows_its_first_token_and_no_shift() -> None:
    result = first_token_probe(counter_for(MOD10, LSTMConfig(MOD10.vocab.size, d_model=16, n_layers=1)))
    assert result.best_first.first.value == 1
    assert not result.best_first.first.learnt
    assert result.best_shift.shift.value < 0.1
    assert "position ids are ignored" in result.verdict.sentence
    assert result.verdict.agrees is None


def test_an_untrained_counter_has_learnt_nothing() -> None:
    """It is one of its own kind: the mark "learnt" is rare over its sites."""
    result = first_token_probe(counter_for(MOD10, position="ape", n_layers=2))
    readings = [reading for found in result.sites for reading in (found.first, found.shift)]
    assert np.mean([reading.learnt for reading in readings]) < 0.15


def test_held_out_rows_have_shifts_of_their_own() -> None:
    tokens = shifted_tokens(counter_for(MOD10, position="ape"), MOD10, seed=0)
    parts = [set(tokens.shifts[at]) for at in (tokens.fitted, tokens.choosing, tokens.reported)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 72
    assert min(map(len, parts)) >= 18
    assert (np.bincount(tokens.rows[tokens.first]) == 1).all()
    assert set(tokens.columns[tokens.first]) == {0}
    assert {1, 2, 3} <= set(tokens.columns)
    position_ids = tokens.batch.position_ids.numpy()
    np.testing.assert_array_equal(position_ids[tokens.rows, tokens.columns], tokens.shifts + tokens.columns)
    assert position_ids.max() <= 127
    missed = np.var((own_pid_guess(tokens) - tokens.shifts)[tokens.reported])
    assert 1 - missed / np.var(tokens.shifts[tokens.reported]) == pytest.approx(0.7, abs=0.1)


@pytest.mark.parametrize("name", ["helper", "helper_shifted", "shifted_start", "selective", "vanilla_succession"])
def test_every_task_has_a_first_counted_token(name: str) -> None:
    task = make_task(name)
    tokens = shifted_tokens(counter_for(task, position="ape"), task, seed=1)
    assert set(tokens.columns[tokens.first]) == {task.prefix}
    assert tokens.columns.min() == task.prefix
    assert tokens.batch.attention_mask.numpy()[tokens.rows, tokens.columns].all()


@pytest.mark.parametrize(
    ("task", "settings", "ind", "claim"),
    [
        (MOD10, {"position": "ape"}, 100.0, True),
        (MOD10, {"position": "ape"}, 50.0, None),
        (MOD10, {"position": "rope"}, 10.0, False),
        (make_task("mod10", bos=True), {"position": "rope"}, 100.0, None),
        (MIXED, {"position": "nope"}, 100.0, True),
        (MIXED, {"position": "nope", "causal": False}, 4.0, False),
        (MIXED, {"position": "ape"}, 100.0, None),
        (make_task("helper"), {"position": "nope"}, 100.0, None),
    ],
)
def test_what_the_paper_says_of_a_counter(task: Task, settings: dict, ind: float, claim: bool | None) -> None:
    counter = counter_for(task, scores={"ind": ind}, **settings)
    assert first_token_probe(counter, sites=[Site("resid_post", 0)]).claim is claim


def test_the_table_has_one_line_a_site_and_quantity_and_json_repeats() -> None:
    counter = counter_for(MOD10, position="ape")
    result, same = (first_token_probe(counter, seed=3) for _ in range(2))
    assert len(result.to_frame()) == 2 * len(result.sites)
    assert json.dumps(result.to_dict()) == json.dumps(same.to_dict())


def test_the_quick_score_is_that_of_the_best_block() -> None:
    counter = counter_for(MOD10, position="ape", n_layers=2)
    probed: FirstToken = first_token_probe(counter, sites=[Site("resid_post", 0), Site("resid_post", 1)])
    assert first_token_score(counter) == probed.best_first.first.value


def reading(choosing: float, value: float, p: float = 0.001) -> Reading:
    return Reading(value, value - 0.1, min(1.0, value + 0.1), choosing, p, (0.5,))


def test_the_best_site_is_chosen_on_other_rows_than_it_is_reported_on() -> None:
    lucky, honest = Site("q", 0), Site("k", 0)
    sites = (
        SiteReadings(lucky, reading(0.6, 0.99), reading(0.1, 0.9)),
        SiteReadings(honest, reading(0.8, 0.75), reading(0.5, 0.4)),
    )
    found = FirstToken(0.3, sites, False, True)
    assert found.best_first.site == found.best_shift.site == honest
    assert "at L0 k, which other rows chose: balanced accuracy 75% (65% to 85%), p = 0.001" in found.verdict.sentence
    assert found.verdict.agrees is None  # read, and far from always


@pytest.mark.parametrize(
    ("value", "p", "claim", "agrees"),
    [
        (1.0, 0.001, True, True),
        (0.9, 0.001, True, True),  # within the interval of one that is always right
        (0.7, 0.001, True, None),
        (0.55, 0.3, True, False),
        (0.55, 0.3, False, True),
        (1.0, 0.001, False, False),
        (0.7, 0.001, False, None),
        (1.0, 0.001, None, None),
    ],
)
def test_agreement_with_the_paper_is_graded(value: float, p: float, claim: bool | None, agrees: bool | None) -> None:
    sites = (SiteReadings(Site("q", 0), reading(value, value, p), reading(0.0, 0.0)),)
    assert FirstToken(0.3, sites, False, claim).verdict.agrees is agrees


@pytest.mark.parametrize(("value", "p", "label"), [(0.97, 0.001, ""), (0.8, 0.001, " in part"), (0.6, 0.4, None)])
def test_the_label_says_what_the_sentence_says(value: float, p: float, label: str | None) -> None:
    sites = (SiteReadings(Site("resid_post", 0), reading(value, value, p), reading(0.5, 0.5)),)
    result = FirstToken(0.3, sites, False, None)
    assert result.headline.label == ("first token not read" if label is None else f"first token read{label}")
    assert ("not read" in result.verdict.sentence.partition(";")[0]) == (label is None)


@pytest.mark.parametrize("seeds", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_among_many_sites_of_noise_the_best_is_no_better_than_chance(seeds: int) -> None:
    """Thirty sites that know nothing: the best on its own rows looks well read, on others it does not."""
    counter = counter_for(MOD10, position="nope")
    chosen_on_itself, reported, alarms = [], [], 0
    for seed in range(seeds):
        tokens = shifted_tokens(counter, MOD10, seed)
        generator = np.random.default_rng(seed)
        noise = {Site("q", 0, head): generator.normal(size=(len(tokens.rows), 8)) for head in range(30)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_token_activations", lambda *_, noise=noise: noise)
            found = read_sites(counter, tokens, list(noise), seed)
        best = max(found.values(), key=lambda pair: pair[0].choosing)[0]
        chosen_on_itself.append(max(pair[0].value for pair in found.values()))
        reported.append(best.value)
        alarms += best.p <= 0.05
    assert np.mean(chosen_on_itself) > 0.6
    assert np.mean(reported) == pytest.approx(0.5, abs=0.18 / seeds**0.5)
    assert alarms <= 0.2 * seeds


def test_no_sites_and_no_room_are_refused() -> None:
    with pytest.raises(CountLensError, match="no sites to look at"):
        first_token_probe(counter_for(MOD10), sites=[])
    with pytest.raises(NotApplicable, match="leaves no room to shift"):
        first_token_probe(counter_for(MOD10, max_position=6))


def shipped(scheme: str) -> Counter:
    """The two-layer mod-10 counter of this scheme that extrapolates best."""
    found = sorted(SHIPPED.glob(f"mod10/{scheme}-2L/*/{CHECKPOINT}"), key=lambda path: read_info(path).scores["ood"])
    return load_counter(found[-1])


@pytest.mark.parametrize("scheme", ["nope", "sine", "ape", "rope", "spe"])
def test_shipped_counters_recognise_their_first_token_as_the_paper_says(scheme: str) -> None:
    assert first_token_probe(shipped(scheme)).verdict.agrees is True
