"""RNN and LSTM against torch's own, in float64; and mutants that the comparison catches."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from models import build_counter, hook_name
from models.config import LSTMConfig, RNNConfig
from models.lstm import LSTMMixer
from models.rnn import ElmanMixer

FAMILIES = {"rnn": (RNNConfig, nn.RNN, ElmanMixer), "lstm": (LSTMConfig, nn.LSTM, LSTMMixer)}


def pair(family: str, n_layers: int = 3) -> tuple[nn.Module, nn.Module]:
    """A counter, and torch's own stack of as many layers with the same weights."""
    config, oracle_class, _ = FAMILIES[family]
    counter = build_counter(config(11, d_model=16, n_layers=n_layers, embed_std=1.0), torch.Generator().manual_seed(0))
    oracle = oracle_class(16, 16, n_layers, batch_first=True).double()
    with torch.no_grad():
        for layer, block in enumerate(counter.blocks):
            for name, parameter in block.mixer.cell.named_parameters():
                parameter.mul_(2)
                oracle.get_parameter(name.replace("l0", f"l{layer}")).copy_(parameter)
    return counter.double().eval(), oracle


def listen(counter: nn.Module) -> list[tuple[str, object]]:
    """A listener at each layer's state, so that the open path is taken."""
    return [(hook_name("state", layer), lambda x, hook: None) for layer in range(counter.cfg.n_layers)]


def gap(counter: nn.Module, oracle: nn.Module, opened: bool) -> tuple[float, float]:
    """The largest difference in logits, and in the gradients of the weights."""
    token_ids = torch.randint(0, 11, (4, 25), generator=torch.Generator().manual_seed(1))
    ours = counter.run_with_hooks(token_ids, token_ids, fwd_hooks=listen(counter) if opened else [])
    theirs = oracle(counter.embed(token_ids).detach())[0] @ counter.unembed.W_U
    weights = [list(block.mixer.cell.parameters()) for block in counter.blocks]
    our_gradients = torch.autograd.grad(ours.pow(2).sum(), [p for layer in weights for p in layer])
    their_gradients = torch.autograd.grad(theirs.pow(2).sum(), list(oracle.parameters()))
    gaps = [(a - b).abs().max() / (1 + b.abs().max()) for a, b in zip(our_gradients, their_gradients, strict=True)]
    return (ours - theirs).abs().max().item(), max(gaps).item()


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_torch(family: str, opened: bool) -> None:
    logits, gradients = gap(*pair(family), opened)
    assert logits < 1e-12
    assert gradients < 1e-12


Method = Callable[..., object]


def with_a_weaker_state(original: Method) -> Method:
    return lambda self, state, *inputs: 0.9 * original(self, state, *inputs)


def without_the_state(original: Method) -> Method:
    return lambda self, state, *inputs: original(self, torch.zeros_like(state), *inputs)


def with_two_gates_swapped(original: Method) -> Method:
    return lambda self, *args: tuple(original(self, *args)[gate] for gate in (1, 0, 2, 3))


@pytest.mark.parametrize(
    ("family", "method", "mutate"),
    [
        ("rnn", "transition", with_a_weaker_state),
        ("rnn", "transition", without_the_state),
        ("lstm", "transition", without_the_state),
        ("lstm", "_gates", with_two_gates_swapped),
    ],
)
def test_a_mutant_is_far_outside_the_tolerance(
    family: str, method: str, mutate: Callable[[Method], Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    mixer = FAMILIES[family][2]
    monkeypatch.setattr(mixer, method, mutate(getattr(mixer, method)))
    logits, _ = gap(*pair(family), opened=True)
    assert logits > 1e-3


def test_gates_are_those_that_made_the_state() -> None:
    counter, _ = pair("lstm", n_layers=1)
    token_ids = torch.randint(0, 11, (4, 25), generator=torch.Generator().manual_seed(1))
    _, cache = counter.run_with_cache(token_ids, token_ids)
    i, f, g, o = (cache[hook_name(f"gate_{gate}", 0, "mixer")] for gate in "ifgo")
    hidden, cell = cache["blocks.0.mixer.hook_state"].unbind(2)
    before = torch.nn.functional.pad(cell, (0, 0, 1, 0))[:, :-1]
    torch.testing.assert_close(cell, f * before + i * g)
    torch.testing.assert_close(hidden, o * cell.tanh())


def test_an_edited_gate_changes_its_own_position_only() -> None:
    counter, _ = pair("lstm", n_layers=1)
    token_ids = torch.randint(0, 11, (4, 25), generator=torch.Generator().manual_seed(1))
    plain = counter(token_ids, token_ids)

    def shut(gate: torch.Tensor, hook: object) -> torch.Tensor:
        gate = gate.clone()
        gate[:, 9] = 0
        return gate

    for gate in "ifgo":
        hooks = [(hook_name(f"gate_{gate}", 0, "mixer"), shut)]
        moved = (counter.run_with_hooks(token_ids, token_ids, fwd_hooks=hooks) - plain).abs().amax((0, 2))
        assert moved[9] > 1e-3
        moved[9] = 0
        assert moved.max() < 1e-12


def test_long_rows_and_large_inputs_stay_finite() -> None:
    for family in FAMILIES:
        counter, _ = pair(family)
        token_ids = torch.zeros(1, 4096, dtype=torch.long)
        with torch.no_grad():
            counter.embed.W_E.mul_(1e4)
            assert counter(token_ids, token_ids).isfinite().all()
