"""A transformer's forward pass taken up again behind a patch, for many patches at once.

What a patch at (layer, pos) can change is all that is computed. A change of q, z, attn_out, ... at one position stays
at this position until the next layer's attention (a `Point`); a change of the stream, k or v reaches, in a causal
counter, every later position (a `Rest`). Earlier layers are not touched, keys and values of earlier positions are
those of the unpatched run, and in the last layer only those queries are asked whose logits somebody reads.
No hook is used: the pass is written in terms of the counter's weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from models.counter import Logits, PositionIds, TokenIds
from models.hooks import hook_name
from models.position_tables import rotate
from models.transformer import Attention, Block, LayerNorm, Transformer
from probes.patching_cells import Cells

Queries = Float[Tensor, "cell batch query head d_head"]
Keys = Float[Tensor, "cell batch key head d_head"]
Asked = tuple[Int[Tensor, "query"], Float[Tensor, "cell batch query d_model"], Queries, Keys, Keys]
Stream = Float[Tensor, "cell batch pos d_model"]
AnyStream = Float[Tensor, "*batch d_model"]


@dataclass(frozen=True)
class Point:
    """A residual stream that differs from the unpatched one at one position a cell."""

    pos: Int[Tensor, "cell"]
    resid: Float[Tensor, "cell batch d_model"]


@dataclass(frozen=True)
class Rest:
    """A residual stream at these positions (all from one on, or in the end those that are read)."""

    positions: Int[Tensor, "pos"]
    resid: Stream


class TransformerRerun:
    """The unpatched run of a batch, and the logits that patches of it give."""

    def __init__(
        self,
        counter: Transformer,
        token_ids: TokenIds,
        position_ids: PositionIds,
        attention_mask: Bool[Tensor, "batch pos"] | None,
        site: str,
    ) -> None:
        self.counter, self.site = counter, site
        self.layers = [block for block in counter.blocks if isinstance(block, Block)]
        self.n_batch, self.n_pos = token_ids.shape
        counter._check(token_ids, position_ids)
        self.rotation = None
        if counter.scheme.rotary:
            self.rotation = counter.rotary_cos[position_ids][:, :, None], counter.rotary_sin[position_ids][:, :, None]
        self.allowed = self._allowed(attention_mask)
        self.projections = [_joined(block.attn) for block in self.layers]
        self.cache: dict[str, Tensor] = {}
        self.unpatched = self._run(token_ids, position_ids)

    def _run(self, token_ids: TokenIds, position_ids: PositionIds) -> Logits:
        """The unpatched logits; keeps what patched runs start from, under the names of the hook points."""
        counter = self.counter
        resid = self.cache["hook_embed"] = F.embedding(token_ids, counter.embed.W_E * counter.embed.gain)
        if counter.scheme.table is not None:
            self.cache["hook_pos_embed"] = F.embedding(position_ids, counter.pos_embed.W_pos)
            resid = resid + self.cache["hook_pos_embed"]
        for layer, block in enumerate(self.layers):
            kept = {"resid_pre": resid}
            weight, bias = self.projections[layer]
            projected = F.linear(_normed(block.ln1, resid), weight, bias)
            kept["q"], kept["k"], kept["v"] = self._split(projected)
            if self.rotation is not None:
                kept["rot_q"], kept["rot_k"] = (rotate(kept[kind], *self.rotation) for kind in "qk")
            q, k = (kept.get(f"rot_{kind}", kept[kind]) for kind in "qk")
            if self.site == "pattern":
                scores = einsum(q, k, "batch query head d, batch key head d -> batch head query key")
                scores = (scores * block.attn.score_scale).masked_fill(~self.allowed[:, None], -torch.inf)
                kept["pattern"] = scores.softmax(-1)
            kept["z"] = self._attend(layer, q[None], k[None], kept["v"][None], self.allowed[None])[0]
            kept["attn_out"] = _mixed(block.attn, kept["z"])
            kept["resid_mid"] = resid + kept["attn_out"]
            kept["mlp_post"] = _hidden(block, kept["resid_mid"])
            kept["mlp_out"] = F.linear(kept["mlp_post"], block.mlp.W_out.T, block.mlp.b_out)
            kept["resid_post"] = resid = kept["resid_mid"] + kept["mlp_out"]
            self.cache |= {hook_name(kind, layer): tensor for kind, tensor in kept.items()}
        return F.linear(_normed(counter.ln_final, resid), counter.unembed.W_U.T)

    def _split(self, projected: Float[Tensor, "*batch heads"]) -> tuple[Tensor, ...]:
        """By heads: queries, keys and values, or the last two."""
        cfg = self.counter.cfg
        return projected.unflatten(-1, (-1, cfg.n_heads, cfg.d_head)).unbind(-3)

    def _allowed(self, attention_mask: Bool[Tensor, "batch pos"] | None) -> Bool[Tensor, "#batch query key"]:
        everywhere = torch.ones(1, self.n_pos, self.n_pos, dtype=torch.bool, device=self.counter.device)
        allowed = everywhere.tril() if self.counter.cfg.causal else everywhere
        return allowed if attention_mask is None else allowed & attention_mask[:, None, :]

    def logits(
        self, layer: int | None, cells: Cells, donor: Mapping[str, Tensor] | ActivationCache, reads: Int[Tensor, "read"]
    ) -> Float[Tensor, "cell batch read d_vocab"]:
        """What the counter answers at the positions that are read, for each of the cells."""
        into, change = self._patched(layer or 0, cells, donor, reads)
        for later in range(into, len(self.layers)):
            change = self._through(later, change, reads)
        return self._answers(change, cells.count, reads)

    def kept(self, kind: str, layer: int) -> Tensor:
        """The unpatched activation of a kind; rotated queries and keys where there is a rotation."""
        kind = f"rot_{kind}" if kind in ("q", "k") and self.rotation is not None else kind
        return self.cache[hook_name(kind, layer)]

    def _patched(
        self, layer: int, cells: Cells, donor: Mapping[str, Tensor] | ActivationCache, reads: Int[Tensor, "read"]
    ) -> tuple[int, Point | Rest]:
        """What the patch itself makes of the stream, and the layer that it goes into next."""
        site = self.site
        if site in ("embed", "pos_embed"):
            name = f"hook_{site}"
            stream = self.kept("resid_pre", 0)
            return 0, self._stream(cells, stream, stream - self.cache[name] + donor[name])
        given, name = self.cache[hook_name(site, layer)], hook_name(site, layer)
        if site == "resid_pre":
            return layer, self._stream(cells, given, donor[name])
        if site == "pattern":  # as other sites have it: position, then head
            weights = cells.values(given.transpose(1, 2), donor[name].transpose(1, 2))
            return layer + 1, self._finished(layer, "z", self._weighed(layer, weights, cells), cells)
        value = cells.values(given, donor[name])
        if site in ("q", "k", "v", "rot_q", "rot_k"):
            return layer + 1, self._attended(layer, site, value, cells, reads)
        return layer + 1, self._finished(layer, site, value, cells)

    def _stream(self, cells: Cells, receiver: Tensor, donor: Tensor) -> Point | Rest:
        return self._change(cells, cells.values(receiver, donor))

    def _change(self, cells: Cells, resid: Tensor) -> Point | Rest:
        if cells.pos is not None:
            return Point(cells.pos, resid)
        return Rest(torch.arange(self.n_pos, device=resid.device), resid)

    def _beside(self, kind: str, layer: int, cells: Cells) -> Tensor:
        """Another activation of the layer, unpatched, at the positions of the cells."""
        tensor = self.cache[hook_name(kind, layer)]
        return tensor if cells.pos is None else tensor.transpose(0, 1)[cells.pos]

    def _finished(self, layer: int, site: str, value: Tensor, cells: Cells) -> Point | Rest:
        """The stream behind the layer, from what a site behind its attention has become."""
        block = self.layers[layer]
        if site == "z":
            site, value = "attn_out", _mixed(block.attn, value)
        if site == "attn_out":
            site, value = "resid_mid", self._beside("resid_pre", layer, cells) + value
        if site == "mlp_post":
            site, value = "mlp_out", F.linear(value, block.mlp.W_out.T, block.mlp.b_out)
        if site == "resid_mid":
            value = _after_mlp(block, value)
        elif site == "mlp_out":
            value = self._beside("resid_mid", layer, cells) + value
        return self._change(cells, value)

    def _weighed(self, layer: int, weights: Tensor, cells: Cells) -> Tensor:
        """z of patched attention weights."""
        v = self.cache[hook_name("v", layer)]
        if cells.pos is None:
            return einsum(weights, v, "cell batch pos head key, batch key head d -> cell batch pos head d")
        return einsum(weights, v, "cell batch head key, batch key head d -> cell batch head d")

    def _attended(self, layer: int, site: str, value: Tensor, cells: Cells, reads: Int[Tensor, "read"]) -> Point | Rest:
        """The stream behind a layer whose queries, keys or values are patched."""
        if self.rotation is not None and site in ("q", "k"):
            value = self._rotated(value, cells.pos)
        part = site[-1]
        rows = {kind: self.kept(kind, layer).expand(cells.count, -1, -1, -1, -1) for kind in "qkv"}
        if cells.pos is None:
            q, k, v = ((rows | {part: value})[kind] for kind in "qkv")
            z = self._attend(layer, q, k, v, self.allowed[None])
            return self._finished(layer, "z", z, cells)
        if part == "q":  # nobody but this query sees it
            mask = self.allowed[:, cells.pos].transpose(0, 1)[:, :, None]
            z = self._attend(layer, value[:, :, None], rows["k"], rows["v"], mask)
            return self._finished(layer, "z", z[:, :, 0], cells)
        rows[part] = _placed(rows[part], cells.pos, value)
        at = self._asked(layer, cells.first(self.counter.cfg.causal), reads)
        z = self._attend(layer, rows["q"][:, :, at], rows["k"], rows["v"], self.allowed[None, :, at])
        resid = self.kept("resid_pre", layer)[:, at] + _mixed(self.layers[layer].attn, z)
        return Rest(at, _after_mlp(self.layers[layer], resid))

    def _through(self, layer: int, change: Point | Rest, reads: Int[Tensor, "read"]) -> Rest:
        """The stream behind an unpatched layer whose input has changed."""
        block = self.layers[layer]
        if isinstance(change, Point):
            at, resid, q, k, v = self._around_points(layer, change, reads)
        else:
            at, resid, q, k, v = self._behind(layer, change, reads)
        z = self._attend(layer, q, k, v, self.allowed[None, :, at])
        return Rest(at, _after_mlp(block, _mixed(block.attn, z).add_(resid)))

    def _around_points(self, layer: int, change: Point, reads: Int[Tensor, "read"]) -> Asked:
        """Queries asked, the stream at them, and q, k, v, when each cell has another stream at one position."""
        first = int(change.pos.min()) if self.counter.cfg.causal else 0
        at = self._asked(layer, first, reads)
        weight, bias = self.projections[layer]
        q, k, v = self._split(F.linear(_normed(self.layers[layer].ln1, change.resid), weight, bias))
        if self.rotation is not None:
            q, k = (self._rotated(x, change.pos) for x in (q, k))
        rows = [self.kept(kind, layer).expand(len(q), -1, -1, -1, -1) for kind in "kv"]
        k, v = (_placed(row, change.pos, new) for row, new in zip(rows, (k, v), strict=True))
        q = _put(self.kept("q", layer)[:, at], at, change.pos, q)
        return at, _put(self.kept("resid_pre", layer)[:, at], at, change.pos, change.resid), q, k, v

    def _behind(self, layer: int, change: Rest, reads: Int[Tensor, "read"]) -> Asked:
        """The same, when all positions from one on have changed: earlier keys and values are the unpatched ones."""
        first = int(change.positions[0])
        at = self._asked(layer, first, reads)
        (weight, bias), resid = self.projections[layer], change.resid
        normed = _normed(self.layers[layer].ln1, resid)
        if len(at) == len(change.positions):
            q, k, v = self._split(F.linear(normed, weight, bias))
        else:  # few queries, but all keys and values
            ends = len(weight) // 3
            resid = resid[:, :, at - first]
            (q,) = self._split(F.linear(normed[:, :, at - first], weight[:ends], bias[:ends]))
            k, v = self._split(F.linear(normed, weight[ends:], bias[ends:]))
        if self.rotation is not None:
            q, k = self._rotated(q, None, at), self._rotated(k, None, change.positions)
        if first:
            before = [self.kept(kind, layer)[:, :first].expand(len(k), -1, -1, -1, -1) for kind in "kv"]
            k, v = (torch.cat(pair, 2) for pair in zip(before, (k, v), strict=True))
        return at, resid, q, k, v

    def _asked(self, layer: int, first: int, reads: Int[Tensor, "read"]) -> Int[Tensor, "pos"]:
        """The queries of a layer that matter: all from the first changed one on, in the last layer those read."""
        if layer == len(self.layers) - 1:
            return reads[reads >= first]
        return torch.arange(first, self.n_pos, device=reads.device)

    def _rotated(
        self, x: Tensor, points: Int[Tensor, "cell"] | None, positions: Int[Tensor, "pos"] | None = None
    ) -> Tensor:
        """Turned by the position ids of the rows: at one position a cell, or at these (else all) in every cell."""
        assert self.rotation is not None
        if points is not None:  # [cell, batch, head, d_head]
            cos, sin = (rearrange(angle.transpose(0, 1)[points], "c b 1 d -> (c b) 1 1 d") for angle in self.rotation)
            return rotate(x.flatten(0, 1)[:, None], cos, sin)[:, 0].unflatten(0, x.shape[:2])
        at = slice(None) if positions is None else positions
        cos, sin = (angle[:, at].repeat(len(x), 1, 1, 1) for angle in self.rotation)
        return rotate(x.flatten(0, 1), cos, sin).unflatten(0, x.shape[:2])

    def _attend(
        self, layer: int, q: Queries, k: Keys, v: Keys, mask: Bool[Tensor, "#cell #batch #query key"]
    ) -> Queries:
        count, n_batch = q.shape[:2]
        if mask.shape[:2] == (1, 1):
            mask = mask[0, :, None]
        else:
            mask = mask.expand(count, n_batch, -1, -1).flatten(0, 1)[:, None]
        q, k, v = (x.flatten(0, 1).transpose(1, 2) for x in (q, k, v))
        scale = self.layers[layer].attn.score_scale
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return z.transpose(1, 2).unflatten(0, (count, n_batch))

    def _answers(
        self, change: Point | Rest, count: int, reads: Int[Tensor, "read"]
    ) -> Float[Tensor, "cell batch read d_vocab"]:
        """Logits at the positions read: new where the stream changed, else those of the unpatched run."""
        answers = self.unpatched[:, reads]
        head = F.linear(_normed(self.counter.ln_final, change.resid), self.counter.unembed.W_U.T)
        if isinstance(change, Point):
            return _put(answers, reads, change.pos, head)
        if len(change.positions) == len(reads):
            return head
        answers = answers.expand(count, -1, -1, -1).clone()
        changed = torch.isin(reads, change.positions)
        answers[:, :, changed] = head[:, :, torch.isin(change.positions, reads)]
        return answers


def _joined(attn: Attention) -> tuple[Tensor, Tensor]:
    """One matrix and bias for queries, keys and values."""
    weight = rearrange(torch.cat([attn.W_Q, attn.W_K, attn.W_V]), "heads d_model d_head -> (heads d_head) d_model")
    return weight.contiguous(), torch.cat([attn.b_Q, attn.b_K, attn.b_V]).flatten()


def _normed(norm: LayerNorm, x: AnyStream) -> AnyStream:
    return F.layer_norm(x, norm.w.shape, norm.w, norm.b, norm.eps)


def _mixed(attn: Attention, z: Float[Tensor, "*batch head d_head"]) -> AnyStream:
    return F.linear(z.flatten(-2), attn.W_O.flatten(0, 1).T, attn.b_O)


def _hidden(block: Block, resid_mid: AnyStream) -> Float[Tensor, "*batch d_mlp"]:
    return F.linear(_normed(block.ln2, resid_mid), block.mlp.W_in.T, block.mlp.b_in).relu_()


def _after_mlp(block: Block, resid_mid: AnyStream) -> AnyStream:
    return F.linear(_hidden(block, resid_mid), block.mlp.W_out.T, block.mlp.b_out).add_(resid_mid)


def _placed(rows: Tensor, pos: Int[Tensor, "cell"], value: Tensor) -> Tensor:
    """A copy of [cell, batch, pos, ...] with another value at one position of each cell."""
    rows = rows.clone()
    rows[torch.arange(len(pos), device=pos.device), :, pos] = value
    return rows


def _put(row: Tensor, at: Int[Tensor, "pos"], pos: Int[Tensor, "cell"], value: Tensor) -> Tensor:
    """[batch, pos, ...] at these positions, once a cell, with the cell's value where its position is among them."""
    rows = row.expand(len(pos), *row.shape).clone()
    cell, slot = (pos[:, None] == at).nonzero(as_tuple=True)
    rows[cell, :, slot] = value[cell]
    return rows
