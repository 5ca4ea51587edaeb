"""Patching equals TransformerLens' own loop on every site that both know, and a naive loop on recurrent counters."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformer_lens.patching
from torch import Tensor

from models import FAMILIES, CountLensError, build_counter, hook_name, to_transformer_lens
from models.attention import KeysValues
from models.config import RecurrentConfig
from models.counter import Counter
from models.schemes import SCHEMES
from models.transformer import Transformer
from probes.patching import engine, patch_cells, rerun_transformer
from probes.patching.engine import PatchGrid, activation_patch, patched_logits
from training.batches import Batch
from training.tasks import NOT_SCORED

N_TOKENS, N_ROWS, N_POS = 13, 2, 7
RECURRENT = [name for name, family in FAMILIES.items() if issubclass(family.config, RecurrentConfig)]
SETTINGS: dict[str, dict[str, int]] = {"s4": {"d_state": 8}, "mamba": {"d_state": 4}, "rwkv6": {"d_head": 8}}
# One scheme of each way in which positions act: added, rotating, as a bias.
SCHEME_CASES = [("ape", True), ("rope", True), ("sine", False), ("rope", False)]
SCHEME_CASES += [(name, causal) for name, scheme in SCHEMES.items() if scheme.bias for causal in (True, False)]
# The sweeps of `transformer_lens.patching`: the site of each, and the axes of its tensor in their order.
SWEEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (name, ("layer", "pos")) for name in ("resid_pre", "resid_mid", "attn_out", "mlp_out")},
    "attn_head_out_by_pos": ("z", ("layer", "pos", "head")),
    "attn_head_out_all_pos": ("z", ("layer", "head")),
    **{f"attn_head_{kind}_by_pos": (kind, ("layer", "pos", "head")) for kind in "qkv"},
    **{f"attn_head_{kind}_all_pos": (kind, ("layer", "head")) for kind in "qkv"},
    "attn_head_pattern_by_pos": ("pattern", ("layer", "head", "pos")),
    "attn_head_pattern_all_pos": ("pattern", ("layer", "head")),
    "attn_head_pattern_dest_src_pos": ("pattern", ("layer", "head", "pos", "src")),
}


def lively(family: str = "transformer", **settings: Any) -> Counter:
    """A counter in which nothing is zero or one, biases, norms and all."""
    generator = torch.Generator().manual_seed(3)
    shape = {"n_layers": 2, "d_model": 16} | SETTINGS.get(family, {}) | settings
    counter = build_counter(FAMILIES[family].config(N_TOKENS, **shape), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return counter.eval()


def pair(n_pos: int = N_POS, n_rows: int = N_ROWS) -> tuple[Batch, Batch]:
    """Clean and corrupted rows: other tokens, labels and positions."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for start in (0, 3):
        token_ids, label_ids = torch.randint(0, N_TOKENS, (2, n_rows, n_pos), generator=generator)
        position_ids = start + torch.arange(n_pos) + 5 * torch.arange(n_rows)[:, None]
        mask = torch.ones(n_rows, n_pos, dtype=torch.bool)
        batches.append(Batch(token_ids, position_ids, label_ids, mask, torch.ones(n_rows)))
    return batches[0], batches[1]


WEIGHTS = torch.randn(N_ROWS, N_POS, N_TOKENS, generator=torch.Generator().manual_seed(1)) / 10


def metric(logits: Tensor) -> Tensor:
    """Every logit of every position counts, each by another weight."""
    return (logits * WEIGHTS[:, : logits.shape[1]]).sum((1, 2)).mean()


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few cells, so that they begin at several positions; and no progress bars."""
    monkeypatch.setattr(patch_cells, "TOKENS_AT_ONCE", 40)
    monkeypatch.setattr(transformer_lens.patching, "tqdm", lambda rows: rows)


def both_ways(counter: Counter, name: str, n_pos: int = N_POS) -> tuple[Tensor, Tensor]:
    """Ours and TransformerLens', of the same rows."""
    clean, corrupted = pair(n_pos)
    with torch.no_grad(), counter.at_positions(corrupted.position_ids):
        _, cache = counter.run_with_cache(clean.token_ids, clean.position_ids)
        theirs = getattr(transformer_lens.patching, f"get_act_patch_{name}")(
            counter, corrupted.token_ids, cache, metric
        )
    site, axes = SWEEPS[name]
    grid = activation_patch(counter, clean, corrupted, site, metric, axes=axes)
    ours = torch.from_numpy(grid.values).to(theirs.dtype)
    return ours.permute(*(list(grid.axes).index(axis) for axis in axes)), theirs


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize(("position", "causal"), SCHEME_CASES)
def test_every_sweep_is_that_of_transformer_lens(name: str, position: str, causal: bool) -> None:
    counter = lively(position=position, causal=causal, n_layers=3, n_heads=2)
    n_pos = 4 if "dest_src" in name else N_POS  # the loop has one forward pass per pair of positions
    ours, theirs = both_ways(counter, name, n_pos)
    assert theirs.std() > 1e-3
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


class AtPositions:
    """A bridge to which every call passes these position ids, as TransformerLens' loop does not."""

    def __init__(self, bridge: Any, position_ids: Tensor) -> None:
        self.bridge, self.position_ids = bridge, position_ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bridge, name)

    def run_with_hooks(self, token_ids: Tensor, **kwargs: Any) -> Tensor:
        return self.bridge.run_with_hooks(token_ids, position_ids=self.position_ids, **kwargs)


@pytest.mark.parametrize("name", ["resid_pre", "mlp_out", "attn_head_out_by_pos", "attn_head_v_all_pos"])
@pytest.mark.parametrize("position", ["ape", "rope"])
def test_and_that_of_its_own_bridge(position: str, name: str) -> None:
    counter = lively(position=position)
    ours, _ = both_ways(counter, name)
    bridge = to_transformer_lens(counter)
    clean, corrupted = pair()
    with torch.no_grad():
        _, cache = bridge.run_with_cache(clean.token_ids, position_ids=clean.position_ids)
        shifted: Any = AtPositions(bridge, corrupted.position_ids)
        theirs = getattr(transformer_lens.patching, f"get_act_patch_{name}")(
            shifted, corrupted.token_ids, cache, metric
        )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_reusing_one_position_too_many_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant takes the patched position's own key and value from the unpatched run."""
    put = rerun_transformer._put

    def mutant(rows: Tensor, where: tuple[Tensor, Tensor], new: Tensor) -> Tensor:
        is_key_or_value = rows.ndim == 4 and rows.shape[1] == N_POS
        return put(rows, where, rows[:, where[1]] if is_key_or_value else new)

    monkeypatch.setattr(rerun_transformer, "_put", mutant)
    ours, theirs = both_ways(lively(position="ape"), "resid_pre")
    assert (ours - theirs).abs().max() > 1e-3


def test_a_chunk_that_starts_too_late_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant believes that the first position of a chunk is not yet changed."""
    first = patch_cells.PatchCells.first

    def mutant(self: Any, causal: bool) -> int:
        return min(first(self, causal) + 1, N_POS - 1)

    monkeypatch.setattr(patch_cells.PatchCells, "first", mutant)
    ours, theirs = both_ways(lively(position="ape", n_layers=1), "resid_pre")
    assert (ours - theirs).abs().max() > 1e-3


@pytest.mark.parametrize("position", ["ape", "rope"])
def test_keys_and_values_of_one_position_too_few_are_seen(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant takes the last of the given keys and values from the position before it."""
    past = Transformer._past

    def mutant(self: Any, cache: Any, layer: int, start: int) -> KeysValues:
        keys, values = (x[:, [*range(start - 1), max(start - 2, 0)]] for x in past(self, cache, layer, start))
        return KeysValues(keys, values)

    monkeypatch.setattr(Transformer, "_past", mutant)
    ours, theirs = both_ways(lively(position=position), "resid_pre")
    assert (ours - theirs).abs().max() > 1e-3


def naive(counter: Counter, donor: Batch, receiver: Batch, site: str) -> np.ndarray:
    """One forward pass a cell, through hooks."""
    n_layers = counter.cfg.n_layers
    found = torch.zeros(n_layers, N_POS)
    with torch.no_grad():
        _, cache = counter.run_with_cache(donor.token_ids, donor.position_ids)
        for layer in range(n_layers):
            value = cache[hook_name("state" if site == "state_step" else site, layer)]
            for pos in range(N_POS):

                def edit(x: Tensor, hook: Any, value: Tensor = value, pos: int = pos) -> Tensor:
                    if site == "state_step":
                        return value[:, pos] if hook.ctx["pos"] == pos else x
                    x = x.clone()
                    x[:, pos] = value[:, pos]
                    return x

                hooks = [(hook_name(site, layer), edit)]
                logits = counter.run_with_hooks(receiver.token_ids, receiver.position_ids, fwd_hooks=hooks)
                found[layer, pos] = metric(logits)
    return found.numpy()


CASES = [(family, site) for family in RECURRENT for site in ("resid_pre", "state", "state_step", "resid_post")]


@pytest.mark.parametrize(
    ("family", "site"), [*CASES, ("rwkv6", "resid_mid"), ("rwkv6", "mlp_out"), ("transformer", "mlp_post")]
)
@pytest.mark.parametrize("direction", ["denoise", "noise"])
def test_a_grid_is_a_loop_over_cells(family: str, site: str, direction: Any) -> None:
    counter = lively(family)
    clean, corrupted = pair()
    expected = naive(counter, *((clean, corrupted) if direction == "denoise" else (corrupted, clean)), site)
    found = activation_patch(counter, clean, corrupted, site, metric, direction=direction)
    assert expected.std() > 1e-4
    np.testing.assert_allclose(found.values, expected, atol=1e-5)
    for unpatched, batch in ((found.clean, clean), (found.corrupted, corrupted)):
        own = metric(counter(batch.token_ids, batch.position_ids))
        assert unpatched == pytest.approx(own.item(), abs=1e-5)


@pytest.mark.parametrize("family", ["transformer", *RECURRENT])
def test_a_patched_embedding_is_another_token(family: str) -> None:
    counter = lively(family)
    clean, corrupted = pair()
    grid = activation_patch(counter, clean, corrupted, "embed", metric)
    assert list(grid.axes) == ["pos"]
    for pos in range(N_POS):
        token_ids = corrupted.token_ids.clone()
        token_ids[:, pos] = clean.token_ids[:, pos]
        assert grid.values[pos] == pytest.approx(metric(counter(token_ids, corrupted.position_ids)).item(), abs=1e-5)


def test_a_carried_state_takes_all_that_follows_with_it() -> None:
    """With equal tokens from there on, a patched state of the last layer is the clean run itself."""
    counter = lively("lstm", n_layers=1)
    clean, corrupted = pair()
    corrupted.token_ids[:, 3:] = clean.token_ids[:, 3:]
    logits = patched_logits(counter, clean, corrupted, "state_step", layer=0, pos=2)
    expected = counter(clean.token_ids, clean.position_ids)
    torch.testing.assert_close(logits[:, 2:], expected[:, 2:], atol=1e-5, rtol=0)
    read_out = patched_logits(counter, clean, corrupted, "state", layer=0, pos=2)
    unpatched = counter(corrupted.token_ids, corrupted.position_ids)
    torch.testing.assert_close(read_out[:, 3], unpatched[:, 3], atol=1e-5, rtol=0)


def by_hand(name: str, logits: Tensor, clean: Batch, corrupted: Batch, clean_logits: Tensor) -> float:
    """A metric's definition, token by token."""
    rows = []
    for row in range(N_ROWS):
        tokens = []
        for pos in range(N_POS):
            right, wrong = int(clean.label_ids[row, pos]), int(corrupted.label_ids[row, pos])
            at, probabilities = logits[row, pos], logits[row, pos].softmax(0)
            if right == NOT_SCORED or (name == "logit_diff" and wrong in (NOT_SCORED, right)):
                continue
            truth = clean_logits[row, pos].softmax(0)
            values = {
                "logit_diff": at[right] - at[wrong],
                "probability": probabilities[right],
                "accuracy": float(at.argmax() == right),
                "kl": (truth * (truth / probabilities).log()).sum(),
            }
            tokens.append(float(values[name]))
        rows.append(np.mean(tokens))
    return float(np.mean(rows))


@pytest.mark.parametrize("name", ["logit_diff", "probability", "accuracy", "kl"])
@pytest.mark.parametrize("site", ["resid_pre", "z", "k"])
def test_named_metrics_are_what_they_say(name: str, site: str) -> None:
    counter = lively(position="ape")
    clean, corrupted = pair()
    clean.label_ids[0, 2], corrupted.label_ids[1, 5] = NOT_SCORED, NOT_SCORED
    grid = activation_patch(counter, clean, corrupted, site, name)
    with torch.no_grad():
        clean_logits = counter(clean.token_ids, clean.position_ids)
        patched = patched_logits(
            counter, clean, corrupted, site, layer=1, pos=3, head=0 if site != "resid_pre" else None
        )
    cell = grid.values[(1, 3) if site == "resid_pre" else (1, 3, 0)]
    assert cell == pytest.approx(by_hand(name, patched, clean, corrupted, clean_logits), abs=1e-5)
    assert grid.clean == pytest.approx(by_hand(name, clean_logits, clean, corrupted, clean_logits), abs=1e-5)


@pytest.mark.parametrize(
    ("position", "site"),
    [
        *(("ape", site) for site in ("resid_pre", "resid_post", "z", "q", "v", "embed", "pos_embed")),
        *(("rope", site) for site in ("resid_pre", "resid_post", "z", "q", "v", "embed", "rot_k")),
    ],
)
def test_reading_few_positions_changes_no_number(position: str, site: str) -> None:
    counter = lively(position=position, n_layers=3)
    clean, corrupted = pair()

    def at_some(logits: Tensor) -> Tensor:
        return metric(logits * torch.isin(torch.arange(N_POS), torch.tensor([1, 4]))[:, None])

    def of_some(logits: Tensor) -> Tensor:
        return (logits * WEIGHTS[:, [1, 4]]).sum((1, 2)).mean()

    everything = activation_patch(counter, clean, corrupted, site, at_some)
    few = activation_patch(counter, clean, corrupted, site, of_some, at=[4, 1 - N_POS])
    np.testing.assert_allclose(few.values, everything.values, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("site", ["resid_pre", "resid_post", "q", "rot_q", "k", "v", "pattern", "z"])
def test_nor_does_it_where_a_patch_takes_all_positions(site: str, causal: bool) -> None:
    counter = lively(position="rope", causal=causal, n_layers=2)
    clean, corrupted = pair()
    for axes in (("layer",), ("layer", "head")) if "resid" not in site else (("layer",),):
        everything = activation_patch(
            counter, clean, corrupted, site, lambda logits: (logits[:, [1, 4]] * WEIGHTS[:, [1, 4]]).sum(), axes=axes
        )
        few = activation_patch(
            counter, clean, corrupted, site, lambda logits: (logits * WEIGHTS[:, [1, 4]]).sum(), axes=axes, at=[1, 4]
        )
        np.testing.assert_allclose(few.values, everything.values, atol=1e-5)
        assert np.abs(everything.change).max() > 1e-3


def test_a_whole_clean_stream_restores_everything() -> None:
    clean, corrupted = pair()
    corrupted = replace(corrupted, position_ids=clean.position_ids)
    grid = activation_patch(lively(position="ape"), clean, corrupted, "resid_post", axes=["layer"])
    np.testing.assert_allclose(grid.effect, 1, atol=1e-4)
    noised = activation_patch(lively(position="ape"), clean, corrupted, "resid_post", axes=["layer"], direction="noise")
    np.testing.assert_allclose(noised.effect, 1, atol=1e-4)
    assert noised.values == pytest.approx(grid.corrupted, abs=1e-4)


def test_a_result_names_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "NOTICEABLE", 0.0)
    clean, corrupted = pair()
    grid = activation_patch(lively(), clean, corrupted, "z", only={"pos": [0, -1], "layer": [1]})
    assert grid.axes == {"layer": (1,), "pos": (0, 6), "head": (0, 1, 2, 3)}
    frame = grid.to_frame()
    assert list(frame.columns) == ["site", "layer", "pos", "head", "value", "stderr", "effect"]
    assert len(frame) == 8
    names = [f"layer 1 pos {line.pos} head {line.head}" for line in frame.itertuples()]
    assert grid.cell_names == names
    strongest = int(frame["effect"].argmax())
    assert grid.effect.ravel()[strongest] == frame["effect"][strongest] == frame["effect"].max()
    assert f"most at {names[strongest]} ({frame['effect'][strongest]:.0%})" in grid.verdict.sentence
    whole = activation_patch(lively(), clean, corrupted, "z")
    np.testing.assert_allclose(grid.values, whole.values[1:, [0, 6]], atol=1e-6)
    assert whole.to_dict()["verdict"]["sentence"]


def test_a_pair_without_a_difference_has_nothing_to_restore() -> None:
    clean, _ = pair()
    grid = activation_patch(lively(), clean, clean, metric="probability")
    assert np.isnan(grid.effect).all()
    assert "nothing to patch" in grid.verdict.sentence


def test_a_sweep_without_effect_says_so() -> None:
    """What the embedding of the last position is matters to nobody before it."""
    clean, corrupted = pair()
    grid = activation_patch(lively(), clean, corrupted, "embed", "probability", only={"pos": [-1]}, at=[0])
    np.testing.assert_allclose(grid.effect, 0, atol=1e-6)
    assert "No single patch of embed brings back even 10%" in grid.verdict.sentence


def test_rows_count_by_their_weight() -> None:
    clean, corrupted = pair()
    grid = activation_patch(lively(), clean, corrupted, metric="probability")
    heavy = activation_patch(
        lively(), replace(clean, weights=torch.tensor([3.0, 1.0])), corrupted, metric="probability"
    )
    np.testing.assert_allclose(heavy.values, grid.by_row @ [0.75, 0.25], atol=1e-7)


def not_a_number(logits: Tensor) -> Tensor:
    return logits.sum((1, 2)) * torch.nan


def by_position(logits: Tensor) -> Tensor:
    return logits.sum(-1)


Call = Callable[[Counter, Batch, Batch], PatchGrid]
REFUSED: Mapping[str, tuple[str, Call]] = {
    "site": (
        r"unknown site 'resid_prey': did you mean resid_pre.*All: .*z.*pattern",
        lambda c, a, b: patch(c, a, b, "resid_prey"),
    ),
    "state": (r"unknown site 'state'.*All: ", lambda c, a, b: patch(c, a, b, "state")),
    "axis": (
        r"unknown axis of resid_pre 'head'.*All: layer, pos",
        lambda c, a, b: patch(c, a, b, axes=["layer", "head"]),
    ),
    "no layer": (r"is at one layer", lambda c, a, b: patch(c, a, b, axes=["pos"])),
    "layer": (r"layer 2 is outside 0..1", lambda c, a, b: patch(c, a, b, only={"layer": [2]})),
    "position": (r"position 7 is outside 0..6", lambda c, a, b: patch(c, a, b, at=[7])),
    "lengths": (r"clean rows have 7 positions and corrupted ones 5", lambda c, a, b: patch(c, a, pair(5)[1])),
    "rows": (r"2 clean rows and 3 corrupted ones", lambda c, a, b: patch(c, a, pair(n_rows=3)[1])),
    "metric": (
        r"unknown metric 'logit_dif': did you mean logit_diff",
        lambda c, a, b: patch(c, a, b, metric="logit_dif"),
    ),
    "NaN": (r"metric not_a_number gives nan.*logit_diff", lambda c, a, b: patch(c, a, b, metric=not_a_number)),
    "shape": (r"metric by_position gives shape \(2, 7\)", lambda c, a, b: patch(c, a, b, metric=by_position)),
    "direction": (r"unknown direction 'nose': did you mean noise", lambda c, a, b: patch(c, a, b, direction="nose")),
    "same labels": (r"nothing to compare in rows \[0, 1\]", lambda c, a, b: patch(c, a, a)),
    "ids": (r"position 200 is outside", lambda c, a, b: patch(c, a, replace(b, position_ids=b.position_ids * 0 + 200))),
}


def patch(counter: Counter, clean: Batch, corrupted: Batch, *args: Any, **kwargs: Any) -> PatchGrid:
    return activation_patch(counter, clean, corrupted, *args, **kwargs)


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_patched_is_refused_with_what_can(reason: str) -> None:
    message, call = REFUSED[reason]
    with pytest.raises(CountLensError, match=message):
        call(lively(position="ape"), *pair())


@pytest.mark.parametrize(("family", "site"), [("transformer", "resid_pre"), ("rnn", "state_step"), ("s4", "resid_pre")])
def test_no_hook_is_left_behind_after_an_exception(family: str, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = lively(family).train()
    clean, corrupted = pair()

    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("in the middle")

    # First the metric fails, then the pass itself.
    inside: Any = (rerun_transformer, "_put") if family == "transformer" else (counter.blocks[-1], "forward")
    for broken in ({"metric": fails}, {}):
        if not broken:
            monkeypatch.setattr(*inside, fails)
        with pytest.raises(RuntimeError, match="in the middle"):
            activation_patch(counter, clean, corrupted, site, **({"metric": metric} | broken))
        assert not any(point.fwd_hooks or point.bwd_hooks for point in counter.hook_dict.values())
        assert counter.training


def test_a_counter_with_somebody_s_hooks_is_refused() -> None:
    counter = lively()
    counter.add_hook(hook_name("z", 1), lambda z, hook: z * 0)
    with pytest.raises(CountLensError, match=r"hooks on this counter, at blocks.1.attn.hook_z: counter.reset_hooks"):
        activation_patch(counter, *pair())
