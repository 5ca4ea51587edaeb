"""Hand-built counters: exact for every modulus, length and shift; and the variables are where they are said to be."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from models import CountLensError, load_counter, save_counter, to_transformer_lens
from models.handbuilt import (
    MECHANISMS,
    VOTERS,
    Layout,
    first_position_counter,
    first_position_layout,
    mean_position_counter,
    mean_position_layout,
    voted_position_counter,
)
from models.hooks import hook_name
from models.transformer import Transformer

BOS, OTHER = 0, 1  # ids; the label of remainder r is FIRST_LABEL + r
FIRST_LABEL = 2
MODULI = (2, 3, 5, 7, 10, 12)
ONE_LAYER = ("first_position", "mean_position")


def build(mechanism: str, m: int, max_position: int = 128) -> Transformer:
    labels = range(FIRST_LABEL, FIRST_LABEL + m)
    if mechanism == "first_position":
        return first_position_counter(labels, BOS, FIRST_LABEL + m, max_position)
    if mechanism in VOTERS:
        voters = [voter for voter in VOTERS[mechanism] if voter < max_position] or [0]
        return voted_position_counter(labels, BOS, FIRST_LABEL + m, voters, max_position)
    return mean_position_counter(labels, FIRST_LABEL + m, max_position)


def every_shift(max_position: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One row for each shift, as long as the positions allow; a row's prefixes are the rows of other lengths.

    PIDs of the filling on the right stay at the last one: a causal counter's answers before it do not see it.
    """
    shifts = torch.arange(max_position)[:, None]
    position_ids = (shifts + torch.arange(max_position)).clamp(max=max_position - 1)
    token_ids = torch.full_like(position_ids, OTHER)
    token_ids[:, 0] = BOS
    return token_ids, position_ids


def margins(counter: Transformer, m: int) -> torch.Tensor:
    """By how much the right logit exceeds the best wrong one, at every position of every length and shift."""
    max_position = counter.cfg.max_position
    token_ids, position_ids = every_shift(max_position)
    with torch.inference_mode():
        logits = counter(token_ids, position_ids).clone()
    column = torch.arange(max_position).expand_as(position_ids)
    right = (FIRST_LABEL + column % m)[..., None]
    of_right = logits.gather(2, right)[..., 0]
    margin = of_right - logits.scatter(2, right, -torch.inf).max(2).values
    return margin[column + torch.arange(max_position)[:, None] < max_position]


@pytest.mark.parametrize("m", MODULI)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_length_and_shift_is_counted_right_with_a_wide_margin(mechanism: str, m: int) -> None:
    margin = margins(build(mechanism, m), m)
    assert len(margin) == 128 * 129 // 2
    assert margin.min() > 14


@pytest.mark.parametrize("max_position", [1, 2, 31, 200])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_any_number_of_positions_will_do(mechanism: str, max_position: int) -> None:
    assert margins(build(mechanism, 10, max_position), 10).min() > 14


# One weight each; what it does is the key.
MUTATIONS: dict[str, Callable[[Transformer], torch.Tensor]] = {
    "the first variable column of a position": lambda counter: counter.pos_embed.W_pos[40, own_column(counter)],
    "what a value reads": lambda counter: counter.blocks[0].attn.W_V[0, own_column(counter), 0],
    "what attention writes": lambda counter: counter.blocks[0].attn.W_O[0, 0, -1],
    "what a neuron reads": lambda counter: counter.blocks[0].mlp.W_in[own_column(counter), counter.cfg.d_mlp // 2],
    "what a neuron writes": lambda counter: counter.blocks[0].mlp.W_out[counter.cfg.d_mlp // 2, last_column(counter)],
    "a logit": lambda counter: counter.unembed.W_U[-1, -1],
    "the first norm's gain": lambda counter: counter.blocks[0].ln1.w[own_column(counter)],
}


def own_column(counter: Transformer) -> int:
    """The first column of `own`; mean_position has no `bos` before it."""
    return 2 if counter.embed.W_E[BOS].ne(counter.embed.W_E[OTHER]).any() else 1


def last_column(counter: Transformer) -> int:
    """The column of the last remainder, in the half that is not negated."""
    return counter.cfg.d_model // 2 - 1


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("mechanism", ONE_LAYER)
def test_a_counter_with_one_changed_weight_fails(mechanism: str, mutation: str) -> None:
    counter = build(mechanism, 10)
    with torch.no_grad():
        MUTATIONS[mutation](counter).add_(40.0)
    assert margins(counter, 10).min() < 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_saved_and_loaded_again_it_gives_the_same_logits(mechanism: str, tmp_path: Path) -> None:
    counter = build(mechanism, 7, 40)
    save_counter(tmp_path / "model.safetensors", counter)
    loaded = load_counter(tmp_path)
    assert loaded.cfg == counter.cfg
    assert torch.equal(loaded(*every_shift(40)), counter(*every_shift(40)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_transformer_lens_counts_with_the_same_weights(mechanism: str) -> None:
    counter = build(mechanism, 5, 24)
    token_ids, position_ids = every_shift(24)
    theirs = to_transformer_lens(counter)(token_ids[:1])
    torch.testing.assert_close(theirs, counter(token_ids[:1], position_ids[:1]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("mechanism", ONE_LAYER)
def test_the_stream_is_balanced_and_the_first_norm_is_the_identity(mechanism: str) -> None:
    """mean_position's later streams are of several lengths: there the norms only scale."""
    counter = build(mechanism, 10)
    _, cache = counter.run_with_cache(*every_shift(128))
    for site in ("resid_pre", "resid_mid", "resid_post"):
        half = cache[site, 0].shape[-1] // 2
        torch.testing.assert_close(cache[site, 0][..., :half], -cache[site, 0][..., half:], atol=1e-3, rtol=0)
    block = counter.blocks[0]
    torch.testing.assert_close(block.ln1(cache["resid_pre", 0]), cache["resid_pre", 0])
    identity = torch.isclose(block.ln2(cache["resid_mid", 0]), cache["resid_mid", 0], atol=1e-5).all()
    assert bool(identity) == (mechanism == "first_position")


def test_every_token_attends_to_bos_alone_or_to_all_alike() -> None:
    token_ids, position_ids = every_shift(64)
    patterns = {}
    for mechanism in ONE_LAYER:
        _, cache = build(mechanism, 10, 64).run_with_cache(token_ids, position_ids)
        patterns[mechanism] = cache["pattern", 0][:, 0]
    assert patterns["first_position"][..., 0].min() == 1
    alike = torch.ones(64, 64).tril() / torch.arange(1, 65)[:, None]
    torch.testing.assert_close(patterns["mean_position"], alike.expand(64, -1, -1))


@dataclass(frozen=True)
class Place:
    """Where the value of a variable is while the counter computes."""

    kind: str  # of activation, in TransformerLens' shorthand
    columns: tuple[int, ...]  # of its last axis
    head: int | None = None  # where the kind has heads
    pos: int | None = None  # the only token that has it; None: every token has its own

    @property
    def hook(self) -> str:
        return hook_name(self.kind, layer=0)


def columns(layout: Layout, name: str) -> tuple[int, ...]:
    """The columns of a variable: those that hold it, then those that hold its negative."""
    return tuple(layout.write(name).nonzero()[:, 1].sort().values.tolist())


def places(mechanism: str, m: int) -> dict[str, tuple[Place, ...]]:
    """Where a counter holds the variables of its algorithm: to swap a value there is to swap it in the algorithm."""
    layout = first_position_layout(m) if mechanism == "first_position" else mean_position_layout(m)
    at = {name: columns(layout, name) for name in layout.widths}
    shared = {
        # Before attention `own` is not alone: what is swapped there moves what later tokens read, too.
        "own": (Place("resid_mid", at["own"]),),
        "count": (Place("mlp_out", at["count"]), Place("resid_post", at["count"])),
    }
    if mechanism == "first_position":
        copied = Place("resid_pre", at["own"], pos=0), Place("z", tuple(range(m)), head=0)
        return shared | {"first": (*copied, Place("attn_out", at["first"]), Place("resid_mid", at["first"]))}
    return shared | {"mean": (Place("z", (0,), head=0), Place("attn_out", at["mean"]), Place("resid_mid", at["mean"]))}


def swapped_answers(counter: Transformer, place: Place, base: int, source: int) -> torch.Tensor:
    """Remainders that the counter answers with one place's values from another shift, token c's from token -c - 1."""
    n_pos = 40
    token_ids = torch.full((1, n_pos), OTHER)
    token_ids[0, 0] = BOS
    columns = torch.arange(n_pos)[None]
    _, cache = counter.run_with_cache(token_ids, source + columns, names_filter=place.hook)

    def swap(x: torch.Tensor, hook: object) -> torch.Tensor:
        x, donor = x.clone(), cache[place.hook]
        at = slice(None) if place.pos is None else slice(place.pos, place.pos + 1)
        donor = donor.flip(1) if place.pos is None else donor
        view, view_of_donor = (y if place.head is None else y[:, :, place.head] for y in (x, donor))
        view[:, at, list(place.columns)] = view_of_donor[:, at, list(place.columns)]
        return x

    logits = counter.run_with_hooks(token_ids, base + columns, fwd_hooks=[(place.hook, swap)])
    best, wrong = logits[0].topk(2).values.unbind(-1)
    assert (best - wrong)[1:].min() > 10
    return logits[0].argmax(-1) - FIRST_LABEL


def predicted(mechanism: str, variable: str, place: Place, base: int, source: int) -> torch.Tensor:
    """What the algorithm answers when the variable comes from the other row: distance before the modulus."""
    column = torch.arange(40)
    donor = column if place.pos is not None else column.flip(0)
    if variable == "count":
        return donor
    if mechanism == "first_position":
        return source + donor - base if variable == "own" else base + column - source
    doubled_mean = 2 * base + column if variable == "own" else 2 * source + donor
    return 2 * (source + donor if variable == "own" else base + column) - doubled_mean


@pytest.mark.parametrize("shifts", [(3, 71), (80, 5)])
@pytest.mark.parametrize(
    ("mechanism", "variable"),
    [(mechanism, variable) for mechanism in ONE_LAYER for variable in places(mechanism, 10)],
)
def test_a_variable_swapped_at_any_of_its_places_is_swapped_in_the_algorithm(
    mechanism: str, variable: str, shifts: tuple[int, int]
) -> None:
    counter = build(mechanism, 10)
    for place in places(mechanism, 10)[variable]:
        answers = swapped_answers(counter, place, *shifts)
        expected = predicted(mechanism, variable, place, *shifts) % 10
        assert torch.equal(answers[1:], expected[1:]), place  # bos itself is not scored


def test_reading_undoes_writing_and_sees_no_other_variable() -> None:
    layout = Layout({"one": 1, "own": 3, "first": 2})
    assert layout.d_model == 12
    assert torch.equal(layout.write("own") @ layout.read("own"), torch.eye(3))
    assert not (layout.write("own") @ layout.read("first")).any()
    assert columns(layout, "first") == (4, 5, 10, 11)


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(CountLensError, match="two or more different ids"):
        mean_position_counter([3], 10)
    with pytest.raises(CountLensError, match="two or more different ids"):
        mean_position_counter([3, 3], 10)
    with pytest.raises(CountLensError, match=r"not all in 0\.\.9"):
        mean_position_counter([3, 10], 10)
    with pytest.raises(CountLensError, match=r"bos=10 is outside 0\.\.9"):
        first_position_counter([3, 4], 10, 10)
    with pytest.raises(CountLensError, match="unknown variable 'frist': did you mean first"):
        Layout({"first": 1}).read("frist")
