"""RNN and LSTM against torch's own, in float64; and mutants that the comparison catches."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from models import build_counter, hook_name
from models.config import LSTMConfig, RNNConfig
from models.errors import CountLensError
from models.lstm import LSTMMixer
from models.rnn import ElmanMixer

FAMILIES = {"rnn": (RNNConfig, nn.RNN, ElmanMixer), "lstm": (LSTMConfig, nn.LSTM, LSTMMixer)}


def pair(family: str, n_layers: int = 3, dropout: float = 0.0) -> tuple[nn.Module, nn.Module]:
    """A counter, and torch's own stack of as many layers with the same weights and dropout."""
    config, oracle_class, _ = FAMILIES[family]
    cfg = config(11, d_model=16, n_layers=n_layers, embed_std=1.0, dropout=dropout)
    counter = build_counter(cfg, torch.Generator().manual_seed(0))
    oracle = oracle_class(16, 16, n_layers, batch_first=True, dropout=dropout).double()
    with torch.no_grad():
        for layer, block in enumerate(counter.blocks):
            for name, parameter in block.mixer.cell.named_parameters():
                parameter.mul_(2)
                oracle.get_parameter(name.replace("l0", f"l{layer}")).copy_(parameter)
    return counter.double().eval(), oracle


def listen(counter: nn.Module) -> list[tuple[str, object]]:
    """A hook at each layer's state, so that the path with hooks is taken."""
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


@pytest.mark.parametrize("family", FAMILIES)
def test_input_weights_may_start_larger_than_torchs_so_that_a_signal_passes_many_layers(family: str) -> None:
    config = FAMILIES[family][0]
    token_ids = torch.arange(11)[:, None]
    spreads = {}
    for std in (None, 0.3):
        cfg = config(11, d_model=64, n_layers=4, embed_std=1.0, input_std=std)
        counter = build_counter(cfg, torch.Generator().manual_seed(0))
        for block in counter.blocks:
            weight_ih, weight_hh, *_ = block.mixer.cell.all_weights[0]
            assert weight_ih.std().item() == pytest.approx(std or (1 / 8) / 3**0.5, rel=0.05)
            assert weight_hh.abs().max() <= 1 / 8
        _, cache = counter.run_with_cache(token_ids, token_ids)
        spreads[std] = cache["resid_post", 3].std(0).mean().item()  # how far tokens differ after the last layer
    assert spreads[0.3] > 10 * spreads[None]


def layer_inputs(counter: nn.Module, token_ids: torch.Tensor) -> list[torch.Tensor]:
    """What each mixer receives in one forward pass, after dropout."""
    inputs: list[torch.Tensor] = []
    handles = [
        block.mixer.register_forward_pre_hook(lambda module, args: inputs.append(args[0])) for block in counter.blocks
    ]
    counter(token_ids, token_ids)
    for handle in handles:
        handle.remove()
    return inputs


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_stands_between_layers_and_nowhere_else(family: str) -> None:
    counter, _ = pair(family, dropout=0.5)
    torch.manual_seed(0)  # of dropout
    token_ids = torch.randint(0, 11, (4, 25), generator=torch.Generator().manual_seed(1))
    for training, share in ((False, 0.0), (True, 0.5)):
        first, *later = layer_inputs(counter.train(training), token_ids)
        torch.testing.assert_close(first, counter.embed(token_ids), rtol=0, atol=0)
        for x in later:
            assert (x == 0).double().mean() == pytest.approx(share, abs=0.04)
    _, cache = counter.run_with_cache(token_ids, token_ids)
    assert (cache["resid_post", 2] != 0).all()  # the output of the last layer is whole


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_has_the_distribution_of_torchs_own(family: str) -> None:
    """Mean and variance of the logits over many masks; torch draws its masks in another order."""
    counter, oracle = pair(family, n_layers=2, dropout=0.4)
    token_ids = torch.randint(0, 11, (1, 6), generator=torch.Generator().manual_seed(1)).expand(20_000, 6)
    torch.manual_seed(0)
    with torch.no_grad():
        ours = counter.train()(token_ids, token_ids)[:, -1]
        theirs = (oracle.train()(counter.embed(token_ids))[0] @ counter.unembed.W_U)[:, -1]
        without = (oracle.eval()(counter.embed(token_ids[:1]))[0] @ counter.unembed.W_U)[:, -1]
    noise = theirs.std(0) / len(theirs) ** 0.5
    assert ((ours.mean(0) - theirs.mean(0)).abs() < 6 * noise).all()
    assert ours.std(0).div(theirs.std(0)).sub(1).abs().max() < 0.05
    assert ((without - theirs.mean(0)).abs() > 6 * noise).any()  # so a counter without dropout would fail


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_in_a_single_layer_is_refused_because_it_would_do_nothing(family: str) -> None:
    with pytest.raises(CountLensError, match=r"dropout=0.1 would do nothing.*n_layers=1.*at least 2 layers"):
        FAMILIES[family][0](11, n_layers=1, dropout=0.1)


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
