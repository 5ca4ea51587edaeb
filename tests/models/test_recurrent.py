"""What holds for every recurrent family: two paths with the same numbers, streaming, and edits of the state."""

from dataclasses import replace

import pytest
import torch

from models import FAMILIES, CountLensError, build_counter, hook_name, load_counter, save_counter
from models.config import RecurrentConfig
from models.recurrent import Carry, Recurrent

RECURRENT = [name for name, family in FAMILIES.items() if issubclass(family.config, RecurrentConfig)]
SETTINGS = {"d_model": 64, "n_layers": 2, "embed_std": 1.0}


def lively(family: str, dtype: torch.dtype = torch.float64) -> Recurrent:
    """A counter whose states matter to its logits."""
    generator = torch.Generator().manual_seed(1)
    counter = build_counter(FAMILIES[family].config(13, **SETTINGS), generator)
    with torch.no_grad():
        for parameter in counter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return counter.to(dtype).eval()


def tokens(n_pos: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    token_ids = torch.randint(0, 13, (3, n_pos), generator=torch.Generator().manual_seed(2))
    return token_ids, torch.zeros_like(token_ids)


@pytest.mark.parametrize("family", RECURRENT)
def test_the_open_path_gives_the_numbers_of_the_fast_one(family: str) -> None:
    counter = lively(family)
    fast = counter(*tokens())
    for layer in range(2):
        names = [name for name in counter.hook_dict if name.startswith(f"blocks.{layer}.mixer")]
        assert names
        for name in names:
            calls: list[str] = []
            opened = counter.run_with_hooks(
                *tokens(), fwd_hooks=[(name, lambda x, hook, calls=calls: calls.append(hook.name))]
            )
            assert calls, name
            torch.testing.assert_close(opened, fast, atol=1e-9, rtol=0)
    assert fast.std() > 1e-3


@pytest.mark.parametrize("family", RECURRENT)
def test_both_paths_give_the_same_gradients(family: str) -> None:
    counter = lively(family).train()
    gradients = []
    for hooks in (
        [],
        [("blocks.1.mixer.hook_state", lambda x, hook: None), ("blocks.0.mixer.hook_state_step", lambda x, hook: None)],
    ):
        counter.zero_grad()
        counter.run_with_hooks(*tokens(), fwd_hooks=hooks).pow(2).mean().backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in counter.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-9, rtol=1e-6, msg=name)


@pytest.mark.parametrize("family", RECURRENT)
def test_streaming_equals_parallel(family: str) -> None:
    counter = lively(family)
    token_ids, position_ids = tokens()
    carry, streamed = None, []
    for token in token_ids.unbind(1):
        logits, carry = counter.step(token, carry)
        streamed.append(logits)
    torch.testing.assert_close(torch.stack(streamed, 1), counter(token_ids, position_ids), atol=1e-9, rtol=0)


def carries(counter: Recurrent, token_ids: torch.Tensor) -> list[Carry]:
    """What a stream hands on after these tokens."""
    carry = None
    for token in token_ids.unbind(1):
        _, carry = counter.step(token, carry)
    return carry


def logits_from(counter: Recurrent, carry: list[Carry], token_ids: torch.Tensor) -> torch.Tensor:
    streamed = []
    for token in token_ids.unbind(1):
        logits, carry = counter.step(token, carry)
        streamed.append(logits)
    return torch.stack(streamed, 1)


@pytest.mark.parametrize("family", RECURRENT)
def test_the_memory_is_all_that_goes_on_and_every_part_of_it_is_needed(family: str) -> None:
    """The oracle is the parallel form on a row that was never streamed: another row's beginning, then these tokens."""
    counter = lively(family)
    token_ids, _ = tokens()
    other = token_ids.flip(0).roll(5, 1)
    grafted = torch.cat([other[:, :9], token_ids[:, 14:]], 1)
    expected = counter(grafted, torch.zeros_like(grafted))[:, 9:]
    own, foreign = carries(counter, token_ids[:, :14]), counter.memory(carries(counter, other[:, :9]))
    moved = logits_from(counter, counter.with_memory(own, foreign), token_ids[:, 14:])
    torch.testing.assert_close(moved, expected, atol=1e-9, rtol=0)
    for layer, parts in enumerate(counter.memory(own)):
        for name, part in parts.items():
            without = [dict(memory) for memory in foreign]
            without[layer][name] = part
            wrong = logits_from(counter, counter.with_memory(own, without), token_ids[:, 14:])
            assert (wrong - expected).abs().max() > 1e-4, f"layer {layer}: {name} makes no difference"


BESIDE_THE_STATE = {"mamba": ["window"], "rwkv6": ["time_shift", "channel_shift"]}


@pytest.mark.parametrize("family", RECURRENT)
def test_what_it_remembers_beside_the_state_has_a_name(family: str) -> None:
    counter = lively(family)
    for parts in counter.memory(carries(counter, tokens()[0])):
        assert list(parts) == ["state", *BESIDE_THE_STATE.get(family, [])]


@pytest.mark.parametrize("family", RECURRENT)
def test_a_later_token_changes_no_earlier_logit(family: str) -> None:
    counter = lively(family)
    token_ids, position_ids = tokens()
    changed = token_ids.clone()
    changed[:, 10] = (changed[:, 10] + 1) % 13
    moved = (counter(token_ids, position_ids) - counter(changed, position_ids)).abs().amax((0, 2))
    assert moved[:10].max() < 1e-9
    assert moved[10:].min() > 1e-7


def edit(state: torch.Tensor) -> torch.Tensor:
    """Another number for every entry: a norm behind the readout may be blind to adding the same everywhere."""
    return torch.randn(state.shape[1:], generator=torch.Generator().manual_seed(5), dtype=state.dtype)


@pytest.mark.parametrize("family", RECURRENT)
def test_an_edit_of_one_step_goes_on_and_an_edit_of_the_trajectory_does_not(family: str) -> None:
    counter = lively(family)
    plain = counter(*tokens())
    steps: list[int] = []

    def edit_step(state: torch.Tensor, hook: object) -> torch.Tensor | None:
        steps.append(hook.ctx["pos"])
        return state + edit(state) if hook.ctx["pos"] == 7 else None

    def edit_trajectory(states: torch.Tensor, hook: object) -> torch.Tensor:
        states = states.clone()
        states[:, 7] += edit(states[:, 7])
        return states

    last = 1
    moved = counter.run_with_hooks(*tokens(), fwd_hooks=[(hook_name("state_step", last), edit_step)]) - plain
    moved = moved.abs().amax((0, 2))
    assert steps == list(range(20))
    assert moved[:7].max() < 1e-9
    assert moved[7:].min() > 1e-6
    moved = counter.run_with_hooks(*tokens(), fwd_hooks=[(hook_name("state", last), edit_trajectory)]) - plain
    moved = moved.abs().amax((0, 2))
    assert moved[7] > 1e-6
    moved[7] = 0
    if family == "rwkv6":  # behind the mixer its channel mix looks one position back
        assert moved[8] > 1e-6
        moved[8] = 0
    assert moved.max() < 1e-9


@pytest.mark.parametrize("family", RECURRENT)
def test_a_cache_holds_whole_trajectories(family: str) -> None:
    counter = lively(family)
    _, cache = counter.run_with_cache(*tokens())
    for layer in range(2):
        assert cache[hook_name("state", layer)].shape[:2] == (3, 20)
        assert cache["resid_pre", layer].shape == cache["resid_post", layer].shape == (3, 20, 64)
    assert not any(name.endswith("hook_state_step") for name in cache)
    assert set(cache.keys()) == {name for name in counter.hook_dict if not name.endswith("hook_state_step")}


@pytest.mark.parametrize("family", RECURRENT)
def test_listening_where_nothing_fires_is_an_error(family: str) -> None:
    with pytest.raises(CountLensError, match=r"\(a recurrent counter has no attention\)"):
        lively(family).run_with_cache(*tokens(), names_filter="blocks.0.attn.hook_pattern")


@pytest.mark.parametrize("family", RECURRENT)
def test_position_ids_are_accepted_and_ignored(family: str) -> None:
    counter = lively(family)
    token_ids, position_ids = tokens()
    assert torch.equal(counter(token_ids, position_ids), counter(token_ids, position_ids + 5000))


@pytest.mark.parametrize("family", RECURRENT)
def test_a_saved_counter_comes_back(family: str, tmp_path: pytest.TempPathFactory) -> None:
    counter = lively(family, torch.float32)
    save_counter(tmp_path / "model.safetensors", counter)
    loaded = load_counter(tmp_path)
    assert loaded.cfg == counter.cfg
    torch.testing.assert_close(loaded(*tokens()), counter(*tokens()), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", RECURRENT)
def test_fresh_weights_follow_the_generator_alone(family: str) -> None:
    cfg = FAMILIES[family].config(13, **SETTINGS)
    counters = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(counters))
        counters.append(build_counter(cfg, torch.Generator().manual_seed(seed)))
    first, again, other = (dict(counter.named_parameters()) for counter in counters)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embed.W_E"], other["embed.W_E"])
    wider = build_counter(replace(cfg, embed_std=3.0), torch.Generator().manual_seed(3))
    assert wider.embed.W_E.std() > 2 * first["embed.W_E"].std()
