"""The one registry of positional schemes (paper, section 2.2). No torch here: the command line reads it at once.

All additive schemes are one table, `W_pos[position_id]`, and a gain on the columns of `W_E`; so every scheme fits
HookedTransformer's format exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Scheme:
    """How positions enter a transformer. Functions are named, and found in `models.position_tables` on use."""

    summary: str
    table: str | None  # (max_position, d_model) -> fixed W_pos; None: no W_pos at all
    gain: str  # d_model -> what each column of W_E is multiplied by
    separates_equal_tokens: bool  # without bos, its states can differ between the tokens of `a a a ...`
    colour: str  # in figures
    dash: str = "solid"  # of its line in figures
    learned: bool = False  # W_pos is trained, starting from N(0, init_std)
    rotary: bool = False  # queries and keys are rotated by their position

    def function(self, name: str) -> Callable[..., Any]:
        """The function of this name."""
        return getattr(import_module("models.position_tables"), name)


# Colours are Okabe and Ito's: they differ to everyone.
SCHEMES: dict[str, Scheme] = {
    "nope": Scheme("no positional embedding", "zero_table", "unit_gain", False, "#000000"),
    "sine": Scheme("fixed sine waves added to scaled token embeddings", "sine_table", "root_gain", True, "#0072B2"),
    "ape": Scheme(
        "a learned vector for each absolute position", "zero_table", "unit_gain", True, "#009E73", learned=True
    ),
    # Often lies exactly on nope: dotted, so that both can be seen.
    "rope": Scheme(
        "queries and keys rotated by their position", None, "unit_gain", False, "#D55E00", dash="dot", rotary=True
    ),
    "spe": Scheme("one column holds position / max_position", "scalar_table", "vacant_last_column", True, "#CC79A7"),
}
