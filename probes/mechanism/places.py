"""Places of a counter in which a variable could be, and how it is swapped there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from models.hooks import hook_name
from models.transformer import Transformer
from probes.mechanism.hypotheses import Hypothesis, Variable
from training.tasks import Task

# How a place is swapped.
EDITS = {
    "token": "activations of the token that answers",
    "first": "activations of the row's first token",
    "context": "activations of every token: what the token attends to",
    "weight": "scores of the first token, or of its kind: it weighs so many times more",
    "turn": "the first token's key, turned by so many places",
    "window": "the shares that the last tokens give the first one",
}
TOKEN_KINDS = ("resid_pre", "q", "attn_out", "z", "resid_mid", "mlp_out", "resid_post")
SUBSPACE_KINDS = ("attn_out", "resid_mid", "resid_post")
FROM_ATTENTION = ("attn_out", "z")
CONTEXTS = (("k", "v"), ("k",), ("v",))
WINDOWS = (1, 8, 16, 24)  # of tokens, the last of which answers


@dataclass(frozen=True)
class Place:
    """Where activations are swapped."""

    kinds: tuple[str, ...]
    layers: tuple[int, ...]
    at: str = "token"  # key of EDITS
    head: int | None = None
    within: tuple[str, str] | None = None  # only along the directions of this hypothesis' variable
    of_kind: bool = False  # a weight is that of all tokens of the first one's kind
    n_queries: int | None = None  # how many tokens, the last of which answers, see the edit; None: all

    @property
    def label(self) -> str:
        """Its name in tables and figures.

        >>> Place(("k", "v"), (1,), "context").label, Place(("z",), (0,), head=2).label
        ('L1 k+v of all tokens', 'L0 H2 z')
        >>> Place(("resid_mid",), (0,), within=("mean_position", "own")).label
        'L0 resid_mid along own'
        >>> Place(("attn_scores",), (0, 1), "weight", n_queries=1).label
        'L0+1 weight of the first token, for the token itself'
        """
        layers = "L" + "+".join(map(str, self.layers))
        seen = {None: "", 1: ", for the token itself"}.get(self.n_queries, f", for the last {self.n_queries} tokens")
        special = {
            "weight": f"weight of the first {'kind' if self.of_kind else 'token'}{seen}",
            "turn": "key of the first token, turned",
            "window": f"share of the first token{seen}",
        }
        if self.at in special:
            return f"{layers} {special[self.at]}"
        head = f" H{self.head}" if self.head is not None else ""
        where = {"token": "", "first": " of the first token", "context": " of all tokens"}[self.at]
        within = f" along {self.within[1]}" if self.within else ""
        return f"{layers}{head} {'+'.join(self.kinds)}{where}{within}"

    @property
    def hooks(self) -> list[str]:
        """The hook points at which it is swapped."""
        return [hook_name(kind, layer) for layer in self.layers for kind in self.kinds]


def places_of(counter: Transformer, task: Task, hypotheses: Mapping[str, Hypothesis]) -> list[Place]:
    """Everywhere that some variable could be: the last layer's outputs are left out, for there is the answer."""
    renamed = {"q": "rot_q", "k": "rot_k"} if counter.scheme.rotary else {}
    keys = [(name, variable.name) for name, hypothesis in hypotheses.items() for variable in hypothesis.variables]
    places = []
    for layer in range(counter.cfg.n_layers):
        last = layer == counter.cfg.n_layers - 1
        kinds = [kind for kind in TOKEN_KINDS if not (last and kind in ("mlp_out", "resid_post"))]
        for kind in kinds:
            heads: Iterable[int | None] = range(counter.cfg.n_heads) if kind == "z" else [None]
            places += [Place((renamed.get(kind, kind),), (layer,), head=head) for head in heads]
            places += [Place((kind,), (layer,), within=key) for key in keys if kind in SUBSPACE_KINDS]
        places.append(Place(("resid_pre",), (layer,), "first"))
        places += [Place(tuple(renamed.get(kind, kind) for kind in both), (layer,), "context") for both in CONTEXTS]
    return places + _first_token_places(counter, task)


def _first_token_places(counter: Transformer, task: Task) -> list[Place]:
    """Ways to change what attention gets from the first token, and nothing else."""
    every = tuple(range(counter.cfg.n_layers))
    layers = [(layer,) for layer in every] + [every] * (len(every) > 1)
    of_kind = (False,) if task.bos else (False, True)
    weights = [Place(("attn_scores",), which, "weight", of_kind=kind) for which in layers for kind in of_kind]
    weights += [Place(("attn_scores",), every, "weight", of_kind=kind, n_queries=1) for kind in of_kind]
    turns = [Place(("rot_k",), which, "turn") for which in ((0,), every)] if counter.scheme.rotary else []
    return weights + turns + [Place(("pattern",), (0,), "window", n_queries=size) for size in WINDOWS]


def may_hold(place: Place, hypothesis: str, variable: Variable) -> bool:
    """Whether a hypothesis lets this place hold this variable."""
    if place.at not in variable.where or place.within not in (None, (hypothesis, variable.name)):
        return False
    if place.within is not None and variable.whole:
        return False
    if variable.ignored:  # swapping a whole token would also swap what is not ignored
        return place.at == "context" or place.within is not None
    return not variable.is_outcome or place.at != "token" or place.kinds[0] in FROM_ATTENTION


def is_forced(counter: Transformer, task: Task, place: Place, variable: Variable) -> bool:
    """Whether a swap must come out in every counter that answers right, so that it shows nothing.

    Tokens of one kind differ by nothing but their attention in a counter without absolute positions. With one layer,
    all that attention brings is all that there is to know of a token.
    """
    alike = counter.ignores_shifts and len(task.kinds) == 1 and counter.cfg.n_layers == 1
    whole = place.kinds[0] == "attn_out" or place.at in ("weight", "window")
    return alike and whole and variable.is_outcome and (place.at != "weight" or counter.ignores_positions)
