"""The one registry of positional schemes (paper, section 2.2). No torch here: the command line reads it at once.

All additive schemes are one table, `W_pos[position_id]`, and a gain on the columns of `W_E`; so every scheme that adds
no bias to attention scores fits HookedTransformer's format exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal


@dataclass(frozen=True)
class Scheme:
    """How positions enter a transformer. Functions are named, and found in `models.position_tables` on use."""

    summary: str
    sees: Literal["nothing", "distances", "positions"]  # what logits can depend on: distances are between tokens
    colour: str  # in figures
    dash: str = "solid"  # of its line in figures
    table: str | None = None  # (max_position, d_model) -> fixed W_pos; None: no W_pos at all
    gain: str = "unit_gain"  # d_model -> what each column of W_E is multiplied by
    learned: bool = False  # W_pos is trained, starting from N(0, init_std)
    rotary: bool = False  # queries and keys are rotated by their position
    bias: str | None = None  # (query ids, key ids, n_heads) -> what is added to each head's scores
    pairs_columns: bool = False  # d_model must be even
    waves_over: Literal["d_head", "d_model"] | None = None  # the columns that its waves go over; None: it has no waves

    @property
    def separates_equal_tokens(self) -> bool:
        """Whether, without bos, its states can differ between the tokens of `a a a ...`.

        Where positions act on attention scores alone, every token mixes equal values, whatever the weights are.
        """
        return self.sees == "positions"

    def function(self, name: str) -> Callable[..., Any]:
        """The function of this name."""
        return getattr(import_module("models.position_tables"), name)


# Colours are Okabe and Ito's: they differ to everyone.
SCHEMES: dict[str, Scheme] = {
    "nope": Scheme("no positional embedding", "nothing", "#000000", table="zero_table"),
    "sine": Scheme(
        "fixed sine waves added to scaled token embeddings",
        "positions",
        "#0072B2",
        table="sine_table",
        gain="root_gain",
        pairs_columns=True,
        waves_over="d_model",
    ),
    "ape": Scheme(
        "a learned vector for each absolute position", "positions", "#009E73", table="zero_table", learned=True
    ),
    # Often lies exactly on nope: dotted, so that both can be seen.
    "rope": Scheme(
        "queries and keys rotated by their position",
        "distances",
        "#D55E00",
        dash="dot",
        rotary=True,
        waves_over="d_head",
    ),
    "spe": Scheme(
        "one column holds position / max_position",
        "positions",
        "#CC79A7",
        table="scalar_table",
        gain="vacant_last_column",
    ),
}
