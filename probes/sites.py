"""Sites: the places in a counter whose activations can be read. Only this file knows which ones a family has.

A site is a kind of activation in TransformerLens' shorthand, a layer, and a head for the kinds that have heads:

    transformer   embed, pos_embed; in each layer resid_pre, q, k, v (rope: rot_q, rot_k), z, attn_out, resid_mid,
                  mlp_post, mlp_out, resid_post
    recurrent     embed; in each layer resid_pre, state, resid_post (rwkv6: also resid_mid, mlp_post, mlp_out)

A recurrent counter's state is flattened to one axis; docs/hooks.md says what it holds in each family.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.hooks import hook_name
from models.shapes import PositionIds, TokenIds
from probes.result import NotApplicable
from training.evaluate import evaluating

GLOBAL_KINDS = ("embed", "pos_embed")  # one for the whole counter, not one per layer
HEAD_KINDS = ("q", "k", "v", "rot_q", "rot_k", "z")
LAYER_KINDS = (
    "resid_pre",
    *("q", "k", "v", "rot_q", "rot_k", "z"),
    *("attn_out", "resid_mid", "mlp_post", "mlp_out"),
    *("state", "resid_post"),
)
# The default of `sites_of`: all but `resid_pre`, which is the `resid_post` of the layer before.
USUAL_KINDS = tuple(kind for kind in LAYER_KINDS if kind != "resid_pre")


@dataclass(frozen=True)
class Site:
    """One place at which a counter has activations. If the kind has heads and none is given, it means all of them.

    >>> Site("q", 1, 3).label, Site("resid_post", 0).label, Site("embed").label
    ('L1 H3 q', 'L0 resid_post', 'embed')
    >>> Site("q", 1, 3).hook
    'blocks.1.attn.hook_q'
    """

    kind: str
    layer: int | None = None
    head: int | None = None

    @property
    def label(self) -> str:
        """Its name in tables and figures."""
        layer = [] if self.layer is None else [f"L{self.layer}"]
        head = [] if self.head is None else [f"H{self.head}"]
        return " ".join([*layer, *head, self.kind])

    @property
    def hook(self) -> str:
        """The name of the hook point that it is read from."""
        return hook_name(self.kind, self.layer)

    @property
    def columns(self) -> dict[str, str | int | None]:
        """The site as columns of a table."""
        return {"site": self.label, "kind": self.kind, "layer": self.layer, "head": self.head}


def kinds_of(counter: Counter) -> list[str]:
    """The kinds of activations that a counter has, in the order in which they are computed."""
    layered = [kind for kind in LAYER_KINDS if Site(kind, 0).hook in counter.hook_dict]
    return [kind for kind in GLOBAL_KINDS if Site(kind).hook in counter.hook_dict] + layered


def sites_of(counter: Counter, kinds: Sequence[str] | None = None) -> list[Site]:
    """The sites of these kinds, layer by layer, one per head if the kind has heads.

    By default all kinds but embeddings and the inputs of later layers, which are the outputs of earlier ones.
    """
    known = kinds_of(counter)
    for kind in kinds or ():
        if kind not in known:
            raise unknown("site", kind, known)
    wanted = USUAL_KINDS if kinds is None else kinds
    # If positions are added to the embedding, the first layer's input is the first site that has both.
    inputs = [Site("resid_pre", 0)] if kinds is None and "pos_embed" in known else []
    sites = [Site(kind) for kind in GLOBAL_KINDS if kind in wanted and kind in known] + inputs
    for layer in range(counter.cfg.n_layers):
        for kind in (kind for kind in LAYER_KINDS if kind in wanted and kind in known):
            heads = range(counter.cfg.n_heads) if kind in HEAD_KINDS else [None]
            sites += [Site(kind, layer, head) for head in heads]
    return sites


def all_heads(sites: Sequence[Site]) -> list[Site]:
    """The sites without their heads, each once: all heads of a layer become one site."""
    return list(dict.fromkeys(Site(site.kind, site.layer) for site in sites))


def site_activations(
    counter: Counter,
    token_ids: TokenIds,
    position_ids: PositionIds,
    sites: Sequence[Site],
    attention_mask: Bool[Tensor, "batch pos"] | None = None,
) -> dict[Site, Float[np.ndarray, "batch pos _"]]:
    """The activations at each site, from one forward pass in eval mode and without gradients.

    Raises NotApplicable if activations are not finite, as in a counter whose training diverged.
    """
    _check(counter, sites)
    with evaluating(counter):
        hooks = sorted({site.hook for site in sites})
        _, cache = counter.run_with_cache(token_ids, position_ids, attention_mask, names_filter=hooks)
    values = {site: _read(cache[site.hook], site) for site in sites}
    for site, x in values.items():
        if not np.isfinite(x).all():
            raise NotApplicable(f"activations at {site.label} are not finite: this counter has diverged, train it anew")
    return values


def _read(tensor: Tensor, site: Site) -> Float[np.ndarray, "batch pos _"]:
    """The site's part of a hook point's tensor, with one axis for all columns."""
    if site.head is not None:
        tensor = tensor[:, :, site.head]
    return rearrange(tensor, "batch pos ... -> batch pos (...)").cpu().numpy()


def check_layer(counter: Counter, layer: int) -> None:
    """Refuses a layer that the counter lacks."""
    last = counter.cfg.n_layers - 1
    if not 0 <= layer <= last:
        raise CountLensError(f"layer {layer} is outside 0..{last}: this counter has no such layer")


def _check(counter: Counter, sites: Sequence[Site]) -> None:
    """Refuses sites that the counter lacks."""
    for site in sites:
        has_heads = site.kind in HEAD_KINDS
        heads = counter.cfg.n_heads if has_heads and site.hook in counter.hook_dict else 0
        if site.hook not in counter.hook_dict or (site.head is not None and not 0 <= site.head < heads):
            raise unknown("site", site.label, [known.label for known in sites_of(counter, kinds_of(counter))])
