"""The transformer: its hooks, its two attentions, causality, and what it refuses."""

import pytest
import torch
from transformer_lens.hook_points import HookPoint

from models import CountLensError, TransformerConfig, build_counter, hook_name
from models.position_tables import rotary_angles, sine_table
from models.schemes import SCHEMES
from models.transformer import Transformer


def lively(position: str, causal: bool = True, **settings: object) -> Transformer:
    """A counter whose weights are large enough that a mistake shows in the logits."""
    generator = torch.Generator().manual_seed(1)
    counter = build_counter(TransformerConfig(13, position, n_layers=3, causal=causal, **settings), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return counter.eval()


def inputs(n_pos: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    token_ids = torch.randint(0, 13, (4, n_pos), generator=generator)
    return token_ids, torch.arange(n_pos) + torch.tensor([[0], [3], [50], [108]])


BLOCK_HOOKS = [
    *("ln1.hook_scale", "ln1.hook_normalized", "ln2.hook_scale", "ln2.hook_normalized"),
    *("attn.hook_k", "attn.hook_q", "attn.hook_v", "attn.hook_z"),
    *("attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_result"),
    *("mlp.hook_pre", "mlp.hook_post"),
    *("hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in"),
    *("hook_attn_out", "hook_mlp_out", "hook_resid_pre", "hook_resid_mid", "hook_resid_post"),
]


@pytest.mark.parametrize("position", SCHEMES)
def test_the_whole_ordered_hook_list_is_pinned(position: str) -> None:
    block = list(BLOCK_HOOKS)
    if SCHEMES[position].rotary:
        at = block.index("attn.hook_result") + 1
        block[at:at] = ["attn.hook_rot_k", "attn.hook_rot_q"]
    expected = ["hook_embed"] + ["hook_pos_embed"] * (SCHEMES[position].table is not None)
    expected += [f"blocks.{layer}.{hook}" for layer in range(3) for hook in block]
    expected += ["ln_final.hook_scale", "ln_final.hook_normalized", "unembed.hook_in", "unembed.hook_out"]
    assert list(lively(position).hook_dict) == expected


@pytest.mark.parametrize("position", SCHEMES)
def test_a_cache_holds_every_hook_that_is_not_switched_off(position: str) -> None:
    counter = lively(position)
    _, cache = counter.run_with_cache(*inputs())
    optional = ("hook_result", "hook_attn_in", "hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in")
    assert set(cache.keys()) == {name for name in counter.hook_dict if not name.endswith(optional)}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("position", SCHEMES)
def test_fused_and_explicit_attention_agree(position: str, causal: bool) -> None:
    counter = lively(position, causal)
    fused = counter(*inputs())
    calls = []
    for site in ("attn_scores", "pattern"):
        name = hook_name(site, layer=1)
        explicit = counter.run_with_hooks(*inputs(), fwd_hooks=[(name, lambda x, hook: calls.append(hook.name))])
        torch.testing.assert_close(explicit, fused, atol=1e-5, rtol=0)
    assert len(calls) == 2


@pytest.mark.parametrize("position", SCHEMES)
def test_switched_on_hooks_fire_and_change_no_logit(position: str) -> None:
    counter = lively(position)
    plain = counter(*inputs())
    switches = ("attn_result", "split_qkv_input", "attn_in", "hook_mlp_in")
    for switch in switches:
        getattr(counter, f"set_use_{switch}")(True)
    logits, cache = counter.run_with_cache(*inputs())
    torch.testing.assert_close(logits, plain, atol=1e-5, rtol=0)
    assert set(cache.keys()) == set(counter.hook_dict)
    attn_out = cache["result", 1].sum(-2) + counter.blocks[1].attn.b_O
    torch.testing.assert_close(attn_out, cache["attn_out", 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("reads", [None, [7, 9, 19], [19]])
@pytest.mark.parametrize(("layer", "first"), [(0, 0), (0, 7), (1, 7), (2, 1), (3, 7)])
@pytest.mark.parametrize("position", SCHEMES)
def test_a_run_can_be_taken_up_at_a_layer_and_a_position(
    position: str, layer: int, first: int, reads: list[int] | None
) -> None:
    counter = lively(position)
    token_ids, position_ids = inputs()
    expected, cache = counter.run_with_cache(token_ids, position_ids)
    resid = cache["resid_pre", layer] if layer < 3 else cache["resid_post", 2]
    at = None if reads is None else torch.tensor(reads)
    logits = counter.run_from(layer, first, resid[:, first:], position_ids, cache, reads=at)
    torch.testing.assert_close(logits, expected[:, first:] if reads is None else expected[:, reads], atol=1e-5, rtol=0)


@pytest.mark.parametrize("position", SCHEMES)
def test_copies_of_rows_run_beside_each_other_on_the_same_past(position: str) -> None:
    counter = lively(position)
    token_ids, position_ids = inputs()
    _, cache = counter.run_with_cache(token_ids, position_ids)
    edited = []
    for token in (3, 11):
        edited.append(token_ids.clone())
        edited[-1][:, 7] = token
    both = [counter.run_with_cache(rows, position_ids) for rows in edited]
    resid = torch.cat([kept["resid_pre", 1][:, 7:] for _, kept in both])
    logits = counter.run_from(1, 7, resid, position_ids, cache)
    torch.testing.assert_close(logits, torch.cat([whole[:, 7:] for whole, _ in both]), atol=1e-5, rtol=0)
    assert (logits[:4] - logits[4:]).abs().max() > 1e-2


def test_copies_of_padded_rows_keep_their_padding_out() -> None:
    counter = lively("rope", causal=False)
    token_ids, position_ids = inputs()
    mask = torch.ones_like(token_ids, dtype=torch.bool)
    mask[1:, 15:] = False
    expected, cache = counter.run_with_cache(token_ids, position_ids, mask)
    resid, reads = cache["resid_pre", 1].repeat(2, 1, 1), torch.tensor([2, 5])
    logits = counter.run_from(1, 0, resid, position_ids, {}, mask, reads)
    torch.testing.assert_close(logits, expected[:, reads].repeat(2, 1, 1), atol=1e-5, rtol=0)
    assert (counter(token_ids, position_ids)[1:, reads] - expected[1:, reads]).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("causal", "n_rows", "first", "message"),
    [
        (True, 4, 6, r"4 rows of 13 positions: a run of 4 rows from position 6 of 20 on takes 14"),
        (True, 5, 7, r"5 rows of 13 positions: .* takes 13, and 4 rows or several copies"),
        (False, 4, 7, r"also sees later tokens: run it from position 0, not from 7"),
    ],
)
def test_a_stream_that_does_not_fit_its_rows_is_refused(causal: bool, n_rows: int, first: int, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        lively("ape", causal).run_from(1, first, torch.zeros(n_rows, 13, 64), inputs()[1], {})


def test_hooks_fire_in_a_run_that_is_taken_up_and_only_for_what_it_computes() -> None:
    counter = lively("rope")
    token_ids, position_ids = inputs()
    expected, cache = counter.run_with_cache(token_ids, position_ids)
    shapes = {}

    def keep(value: torch.Tensor, hook: HookPoint) -> None:
        shapes[hook.name] = tuple(value.shape)

    with counter.hooks(fwd_hooks=[(lambda name: True, keep)]):
        resid = cache["resid_pre", 1][:, 7:]
        logits = counter.run_from(1, 7, resid, position_ids, cache, reads=torch.tensor([9, 19]))
    torch.testing.assert_close(logits, expected[:, [9, 19]], atol=1e-5, rtol=0)
    assert not any(name.startswith("blocks.0") for name in shapes)
    assert shapes["blocks.1.hook_resid_post"][1] == shapes["blocks.2.attn.hook_rot_k"][1] == 13
    assert shapes["blocks.2.attn.hook_pattern"] == (4, 4, 2, 20)


@pytest.mark.parametrize("position", SCHEMES)
def test_a_later_token_changes_no_earlier_logit_of_a_causal_counter(position: str) -> None:
    token_ids, position_ids = inputs()
    changed = token_ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 13
    causal, both = lively(position), lively(position, causal=False)
    moved = (causal(token_ids, position_ids) - causal(changed, position_ids)).abs().amax((0, 2))
    assert moved[:10].max() == 0
    assert moved[10] > 1e-3
    moved = (both(token_ids, position_ids) - both(changed, position_ids)).abs().amax((0, 2))
    assert moved[:10].min() > 1e-6


@pytest.mark.parametrize("causal", [True, False])
def test_masked_padding_changes_nothing(causal: bool) -> None:
    counter = lively("ape", causal)
    token_ids, position_ids = inputs()
    mask = torch.ones_like(token_ids, dtype=torch.bool)
    mask[:, 15:] = False
    padded = counter(token_ids, position_ids, mask)[:, :15]
    torch.testing.assert_close(padded, counter(token_ids[:, :15], position_ids[:, :15]), atol=1e-5, rtol=0)
    _, cache = counter.run_with_cache(token_ids, position_ids, mask)
    assert cache["pattern", 0][..., 15:].max() == 0


@pytest.mark.parametrize("position", SCHEMES)
def test_a_scheme_sees_what_its_entry_says(position: str) -> None:
    token_ids, position_ids = inputs()
    counter = lively(position)
    shift = (counter(token_ids, position_ids) - counter(token_ids, position_ids * 0 + position_ids[:1])).abs()
    spread = (counter(token_ids, position_ids) - counter(token_ids, position_ids[:1].expand(4, -1) * 2)).abs()
    seen = "positions" if shift.max() > 1e-3 else "distances" if spread.max() > 1e-3 else "nothing"
    assert seen == SCHEMES[position].sees


def test_the_papers_schemes_see_what_they_should() -> None:
    seen = {name: SCHEMES[name].sees for name in ("nope", "rope", "sine", "ape", "spe")}
    assert seen == {"nope": "nothing", "rope": "distances"} | dict.fromkeys(("sine", "ape", "spe"), "positions")


@pytest.mark.parametrize("position", SCHEMES)
def test_states_of_equal_tokens_differ_as_the_entry_says(position: str) -> None:
    counter = lively(position)
    _, cache = counter.run_with_cache(torch.full((1, 20), 5), torch.arange(20)[None])
    states = cache["resid_post", 2][0]
    assert ((states - states[0]).abs().max() > 1e-3) == SCHEMES[position].separates_equal_tokens


def test_scores_are_divided_by_the_layer() -> None:
    counter = lively("nope")
    _, cache = counter.run_with_cache(*inputs())
    q, k = cache["q", 2], cache["k", 2]
    product = torch.einsum("bqhd,bkhd->bhqk", q, k) / (q.shape[-1] ** 0.5 * 3)
    below = torch.ones(20, 20).tril().bool()
    torch.testing.assert_close(cache["attn_scores", 2][..., below], product[..., below], atol=1e-5, rtol=0)


def test_the_sine_table_is_the_textbook_one() -> None:
    table = sine_table(128, 16)
    assert table[7, 4].item() == pytest.approx(torch.sin(torch.tensor(7 / 10000 ** (4 / 16))).item(), abs=1e-6)
    assert table[7, 5].item() == pytest.approx(torch.cos(torch.tensor(7 / 10000 ** (4 / 16))).item(), abs=1e-6)


def test_given_periods_take_the_place_of_the_first_waves_and_of_no_others() -> None:
    usual, other = sine_table(128, 16), sine_table(128, 16, (10.0, 20.0))
    assert torch.equal(usual[:, 4:], other[:, 4:])
    torch.testing.assert_close(other[:-10, :2], other[10:, :2], atol=1e-5, rtol=0)
    torch.testing.assert_close(other[:-20, 2:4], other[20:, 2:4], atol=1e-5, rtol=0)
    assert torch.equal(rotary_angles(128, 16)[:, 4:], rotary_angles(128, 16, (10.0, 20.0))[:, 4:])


@pytest.mark.parametrize(("periods", "gap", "is_same"), [((10.0,), 10, True), ((10.0,), 7, False), (None, 10, False)])
def test_a_rotary_counter_sees_distances_up_to_its_period(
    periods: tuple[float, ...] | None, gap: int, is_same: bool
) -> None:
    """With one wave a head, a row in which the later tokens lie one period further off looks the same."""
    counter = lively("rope", d_model=8, n_heads=4, d_mlp=32, periods=periods)
    token_ids, position_ids = inputs(10)
    apart = position_ids[:, :] - position_ids[:, :1] + gap * (torch.arange(10) >= 5)
    near = position_ids - position_ids[:, :1]
    assert torch.allclose(counter(token_ids, near), counter(token_ids, apart), atol=1e-4) == is_same


def test_the_scalar_scheme_keeps_its_column_for_the_position() -> None:
    counter = lively("spe")
    token_ids, position_ids = inputs()
    _, cache = counter.run_with_cache(token_ids, position_ids)
    torch.testing.assert_close(cache["resid_pre", 0][..., -1], position_ids / 128)
    counter.train()(token_ids, position_ids).sum().backward()
    assert counter.embed.W_E.grad[:, -1].abs().max() == 0


def test_initial_weights_have_the_papers_spread_and_follow_the_seed() -> None:
    cfg = TransformerConfig(100, "ape", n_layers=2, d_model=256, d_mlp=1024)
    first, again, other = (build_counter(cfg, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name))
    assert not torch.equal(first.embed.W_E, other.embed.W_E)
    assert first.blocks[0].attn.W_Q.std().item() == pytest.approx(0.02, rel=0.03)
    assert first.blocks[0].attn.W_O.std().item() == pytest.approx(0.01, rel=0.03)
    assert first.blocks[0].mlp.W_out.std().item() == pytest.approx(0.01, rel=0.03)


def test_edits_through_a_hook_reach_the_logits_and_leave_nothing_behind() -> None:
    counter = lively("ape")
    plain = counter(*inputs())
    edited = counter.run_with_hooks(*inputs(), fwd_hooks=[(hook_name("z", 0), lambda z, hook: z * 0)])
    assert (edited - plain).abs().max() > 1e-2
    assert torch.equal(counter(*inputs()), plain)
    assert not any(point.fwd_hooks for point in counter.hook_points())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blocks.0.mixer.hook_state", r"no hook point .* \(a transformer carries no state from token to token\)"),
        ("blocks.0.hook_resid_past", r"did you mean blocks\.0\.hook_resid_post"),
        ("blocks.0.attn.hook_result", r"switched on: counter\.set_use_attn_result\(True\)"),
        ("blocks.1.hook_q_input", r"switched on: counter\.set_use_split_qkv_input\(True\)"),
    ],
)
def test_listening_where_nothing_fires_is_an_error(name: str, message: str) -> None:
    counter = lively("ape")
    with pytest.raises(CountLensError, match=message):
        counter.run_with_hooks(*inputs(), fwd_hooks=[(name, lambda x, hook: x)])
    for names_filter in (name, [name]):
        with pytest.raises(CountLensError, match=message):
            counter.run_with_cache(*inputs(), names_filter=names_filter)


def test_positions_are_never_assumed() -> None:
    counter = lively("ape")
    token_ids, position_ids = inputs()
    with pytest.raises(CountLensError, match="position ids are an argument"):
        counter(token_ids)
    with counter.at_positions(position_ids):
        bound = counter(token_ids)
    assert torch.equal(bound, counter(token_ids, position_ids))
    with pytest.raises(CountLensError, match="position ids are an argument"):
        counter(token_ids)


@pytest.mark.parametrize(
    ("token", "position", "message"),
    [
        (0, 128, r"position 128 is outside 0\.\.127 \(max_position=128\): shorten the sequence"),
        (0, -1, r"position -1 is outside 0\.\.127"),
        (13, 0, r"token 13 is outside 0\.\.12 \(d_vocab=13\)"),
    ],
)
def test_ids_outside_the_tables_are_refused(token: int, position: int, message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        lively("ape")(torch.tensor([[token]]), torch.tensor([[position]]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position": "rop"}, "unknown positional scheme 'rop': did you mean rope"),
        ({"d_model": 30, "n_heads": 4}, "d_model=30 is not divisible by n_heads=4: choose n_heads from"),
        ({"d_model": 12, "n_heads": 4, "position": "rope"}, "odd d_head=3"),
        ({"d_model": 33, "n_heads": 1, "position": "sine"}, "d_model=33 is odd"),
        ({"n_layers": 0}, "n_layers=0: must be at least 1"),
    ],
)
def test_configs_that_cannot_be_built_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(CountLensError, match=message):
        TransformerConfig(**{"d_vocab": 13, **settings})


def test_token_embeddings_may_start_with_a_std_of_their_own() -> None:
    plain, small = (
        build_counter(
            TransformerConfig(40, "ape", 2, 64, d_model=32, init_std=0.1, embed_std=embed_std),
            torch.Generator().manual_seed(0),
        )
        for embed_std in (None, 0.002)
    )
    ours, theirs = small.state_dict(), plain.state_dict()
    torch.testing.assert_close(ours.pop("embed.W_E") * 50, theirs.pop("embed.W_E"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
