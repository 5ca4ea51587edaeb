"""The one registry of model families: the config class that describes one, and the module that builds it."""

from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from models.border import build
from models.config import (
    CounterConfig,
    LSTMConfig,
    MambaConfig,
    RNNConfig,
    RWKV6Config,
    S4Config,
    TransformerConfig,
)
from models.errors import CountLensError, unknown

if TYPE_CHECKING:
    import torch

    from models.counter import Counter


TRANSFORMER = "transformer"
OTHER_COLOUR = "#999999"  # in figures, of what has no colour of its own


@dataclass(frozen=True)
class Family:
    """A config class, and where its counter class lives (imported on use: torch is slow to load)."""

    config: type[CounterConfig]
    module: str
    counter: str
    summary: str
    colour: str = OTHER_COLOUR  # in figures


FAMILIES: dict[str, Family] = {
    TRANSFORMER: Family(
        TransformerConfig,
        "models.transformer",
        "Transformer",
        "pre-LN GPT-2 decoder, five positional schemes",
    ),
    "rnn": Family(RNNConfig, "models.rnn", "RNN", "plain Elman RNN", "#56B4E9"),
    "lstm": Family(LSTMConfig, "models.lstm", "LSTM", "plain LSTM", "#E69F00"),
    "s4": Family(S4Config, "models.s4", "S4", "S4-LegS, diagonal plus low rank", "#7A5195"),
    "mamba": Family(MambaConfig, "models.mamba", "Mamba", "selective state space (S6)", "#8C564B"),
    "rwkv6": Family(
        RWKV6Config,
        "models.rwkv6",
        "RWKV6",
        "RWKV-6 (Finch): data-dependent decay and token shift",
        "#4C6B22",
    ),
}


def family_of(cfg: CounterConfig) -> str:
    """The family whose config this is."""
    return next(name for name, family in FAMILIES.items() if type(cfg) is family.config)


def config_from_dict(family: str, fields: dict[str, Any]) -> CounterConfig:
    """The config that `config_to_dict` made these fields of, checked."""
    if family not in FAMILIES:
        raise unknown("family", family, FAMILIES)
    try:
        return build(FAMILIES[family].config, fields, "its config")
    except CountLensError as error:
        raise CountLensError(f"these are no settings of the family {family}: {error}") from error


def config_to_dict(cfg: CounterConfig) -> dict[str, Any]:
    """The fields that rebuild the model; which optional hooks fire is not among them."""
    return {name: value for name, value in asdict(cfg).items() if not name.startswith("use_")}


def build_counter(cfg: CounterConfig, generator: "torch.Generator | None" = None) -> "Counter":
    """A counter with fresh weights drawn from the generator; without one they are not set at all."""
    family = FAMILIES[family_of(cfg)]
    counter: Counter = getattr(import_module(family.module), family.counter)(cfg)
    if generator is not None:
        counter.init_weights(generator)
    return counter
