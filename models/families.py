"""The one registry of model families: the config class that describes one, and the class that builds it."""

from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from models.border import build
from models.config import CounterConfig, omit_unset
from models.errors import CountLensError, unknown

if TYPE_CHECKING:
    import torch

    from models.counter import Counter


TRANSFORMER = "transformer"
OTHER_COLOUR = "#999999"  # in figures, of what has no colour of its own


@dataclass(frozen=True)
class Family:
    """Where a family's two classes are, each as `module:class`. They are imported on use: torch is slow to load."""

    config_path: str
    counter_path: str
    summary: str
    colour: str = OTHER_COLOUR  # in figures

    @cached_property
    def config(self) -> type[CounterConfig]:
        """The class of its configs."""
        return _import_class(self.config_path)

    @cached_property
    def counter(self) -> "type[Counter]":
        """The class of its counters."""
        return _import_class(self.counter_path)


def _import_class(path: str) -> Any:
    module, name = path.split(":")
    return getattr(import_module(module), name)


FAMILIES: dict[str, Family] = {
    TRANSFORMER: Family(
        "models.config:TransformerConfig",
        "models.transformer:Transformer",
        "pre-LN GPT-2 decoder with one of the positional schemes",
    ),
    "rnn": Family("models.config:RNNConfig", "models.rnn:RNN", "plain Elman RNN", "#56B4E9"),
    "lstm": Family("models.config:LSTMConfig", "models.lstm:LSTM", "plain LSTM", "#E69F00"),
    "s4": Family("models.config:S4Config", "models.s4:S4", "S4-LegS, diagonal plus low rank", "#7A5195"),
    "mamba": Family("models.config:MambaConfig", "models.mamba:Mamba", "selective state space (S6)", "#8C564B"),
    "rwkv6": Family(
        "models.config:RWKV6Config",
        "models.rwkv6:RWKV6",
        "RWKV-6 (Finch): data-dependent decay and token shift",
        "#4C6B22",
    ),
}


def family_of(cfg: CounterConfig) -> str:
    """The family whose config this is."""
    path = f"{type(cfg).__module__}:{type(cfg).__name__}"
    return next(name for name, family in FAMILIES.items() if family.config_path == path)


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
    return omit_unset({name: value for name, value in asdict(cfg).items() if not name.startswith("use_")})


def build_counter(cfg: CounterConfig, generator: "torch.Generator | None" = None) -> "Counter":
    """A counter with fresh weights drawn from the generator; without one they are not set at all."""
    counter = FAMILIES[family_of(cfg)].counter(cfg)
    if generator is not None:
        counter.init_weights(generator)
    return counter
