"""Counters whose weights are set by formula: three ways to count modulo m, as ground truth for tests of mechanism.

All answer label((p - s) mod m) at PID p of a row that begins at PID s, for every length and every shift. They are
ordinary ape transformers of one head, and differ only in how they come to know s (paper, section 5):

    first_position    s mod m is copied from bos by attention, and subtracted from p mod m:
                      p - s = (p mod m) - (s mod m)   modulo m
                      The paper prints this difference with the opposite sign, which would count downwards.
    mean_position     uniform attention averages the PIDs so far, which are s, s + 1, ..., p, to (s + p) / 2:
                      p - s = 2 * (p - mean)          no first token is looked for
    voted_position    each of some tokens, such as the second or the first five, says where the row would begin if
                      its own PID is right; attention takes the mean of what they say. Where they agree, it is s mod m.

**Layer norm.** Three rules let a formula pass through it.
1. *Balance.* Every variable is in the stream twice, as v and as -v, so that the mean is 0: a norm only divides by the
   root mean square. `write` makes both copies, `read` takes half their difference.
2. *Constant length.* Where values of several tokens are averaged (the first norm), all tokens have vectors of one
   length: a one-hot, a sign, or a point on a circle. The norm's gain is set to that length, so that the norm is the
   identity.
3. *Scale goes through.* Elsewhere the length may vary. There is a variable `one` that is always 1, and every threshold
   is a multiple of it rather than a bias: ReLU(c * x) = c * ReLU(x) for the c > 0 that the norm puts before everything.
   The right answer then comes out as c instead of 1, and the wrong ones still as 0.

**The stream of first_position**, d_model = 2 * (3 m + 2); every line is there a second time with the opposite sign:

    variable  columns  value                             written by
    one       1        1                                 embed
    bos       1        1 for bos, -1 for other tokens    embed
    own       m        one-hot of p mod m                pos_embed
    first     m        one-hot of s mod m                attention
    count     m        one-hot of (p - s) mod m          mlp

Attention: all queries are equal and only the key of bos is large, so each token takes `own` of bos into its `first`.
MLP: neuron (i, j) is ReLU(own_i + first_j - one), which is 1 if p mod m is i and s mod m is j, else 0. It writes
count_(i - j): a table of subtraction modulo m, with m * m entries.

**The stream of mean_position**, d_model = 2 * (m + 4); x = p / max_position:

    variable  columns  value                             written by
    one       1        1                                 embed
    own       2        x and sqrt(1 - x^2)               pos_embed
    mean      1        mean of x over the tokens so far  attention
    count     m        one-hot of (p - s) mod m          mlp

Attention: queries and keys are 0. MLP: with n = 2 * max_position * (x - mean), neuron t is ReLU(n - t * one). A hat
ReLU(n - (t - 1)) - 2 ReLU(n - t) + ReLU(n - (t + 1)) is 1 at n = t and 0 at all other whole numbers, and the hat of t
writes count_(t mod m). Hats stand at every n that some own and mean give, also at those that only an intervention
brings together, so that a swapped mean is subtracted too.

**The stream of voted_position**, two layers, d_model = 2 * (4 m + 4):

    variable  columns  value                                            written by
    one       1        1                                                embed
    bos       1        1 for bos, -1 for other tokens                   embed
    own       m        one-hot of p mod m                               pos_embed
    share     1        FAINT / n at the n-th token                      attention of layer 0
    voter     1        1 at voters, 1/2 at bos if it is none, else 0    mlp of layer 0
    vote      m        one-hot of (p - n + 1) mod m at voters           mlp of layer 0
    first     m        mean vote of the voters so far                   attention of layer 1
    count     m        one-hot of (p - s) mod m                         mlp of layer 1

Layer 0: attention is uniform and takes `bos`, moved to 1 and 0, so that the n-th token knows 1 / n. A hat over 1 / n,
let through for one value of `own` only, writes the vote. Layer 1: only keys of voters are large. Until the first of
them has come, bos is the best there is. Votes that differ are averaged, and the table gives the largest most.
`share` is written FAINT, so that it hardly changes the length of the stream, which the scores depend on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from models.config import TransformerConfig
from models.errors import CountLensError, unknown
from models.transformer import Transformer
from models.transformer_block import Block

SHARPNESS = 40.0  # how far the score of bos is above the others: e^-40 is negligible beside 1 in float32
LOGIT = 20.0  # logit of the right answer, where the norm's scale is 1
FAINT = 0.02
GATE = 10.0  # more than any hat is high

Read = Float[Tensor, "d_model width"]
Write = Float[Tensor, "width d_model"]


@dataclass(frozen=True)
class Layout:
    """Which columns of the residual stream hold which variable. The second half holds the negatives of the first."""

    widths: Mapping[str, int]  # columns of each variable, in order

    @property
    def half(self) -> int:
        return sum(self.widths.values())

    @property
    def d_model(self) -> int:
        return 2 * self.half

    def write(self, name: str) -> Write:
        """The matrix that writes a variable into the stream: `stream = variable @ write`."""
        names = list(self.widths)
        if name not in names:
            raise unknown("variable", name, names)
        start = sum(self.widths[earlier] for earlier in names[: names.index(name)])
        columns = torch.eye(self.half)[start : start + self.widths[name]]
        return torch.cat([columns, -columns], 1)

    def read(self, name: str) -> Read:
        """The matrix that reads a variable from the stream: `variable = stream @ read`."""
        return self.write(name).T / 2


def first_position_counter(labels: Sequence[int], bos: int, d_vocab: int, max_position: int = 128) -> Transformer:
    """A counter by first position: at distance n from bos it answers `labels[n % m]`, where m is `len(labels)`."""
    m = _check_labels(labels, d_vocab)
    if not 0 <= bos < d_vocab:
        raise CountLensError(f"bos={bos} is outside 0..{d_vocab - 1} (d_vocab={d_vocab}): give its id")
    layout = first_position_layout(m)
    counter, block = _blank(layout, d_vocab, max_position, d_mlp=m * m)
    with torch.no_grad():
        is_bos = torch.full((d_vocab, 1), -1.0)
        is_bos[bos] = 1
        counter.embed.W_E.copy_(layout.write("one") + is_bos @ layout.write("bos"))
        counter.pos_embed.W_pos.copy_(torch.eye(m)[torch.arange(max_position) % m] @ layout.write("own"))
        # The scores of bos and of the others are SHARPNESS / 2 and its negative.
        block.attn.b_Q[0, 0] = math.sqrt(counter.cfg.d_head) * SHARPNESS / 2
        block.attn.W_K[0, :, :1] = layout.read("bos")
        block.attn.W_V[0, :, :m] = layout.read("own")
        block.attn.W_O[0, :m] = layout.write("first")
        _subtract(block, layout, m)
        _set_norms(counter, block, squares=(3, 4, 5))  # one, bos and own; and first; and count
        counter.unembed.W_U[:, list(labels)] = LOGIT * layout.read("count")
    return counter.eval()


def mean_position_counter(labels: Sequence[int], d_vocab: int, max_position: int = 128) -> Transformer:
    """A counter by mean position: at distance n from the first token it answers `labels[n % m]`.

    It ignores which tokens a row has, so a row may begin with bos: it is a token like any other.
    """
    m = _check_labels(labels, d_vocab)
    layout = mean_position_layout(m)
    furthest = 2 * (max_position - 1)  # of 2 * (own - mean), in both directions
    thresholds = torch.arange(-furthest - 1, furthest + 2)  # a hat needs both neighbours
    counter, block = _blank(layout, d_vocab, max_position, d_mlp=len(thresholds))
    with torch.no_grad():
        counter.embed.W_E.copy_(layout.write("one"))
        counter.pos_embed.W_pos.copy_(_quarter_circle(max_position) @ layout.write("own").double())
        block.attn.W_V[0, :, :1] = layout.read("own")[:, :1]
        block.attn.W_O[0, :1] = layout.write("mean")
        difference = layout.read("own")[:, :1] - layout.read("mean")
        block.mlp.W_in.copy_(2 * max_position * difference - thresholds * layout.read("one"))
        hats = layout.write("count")[thresholds[1:-1] % m]
        block.mlp.W_out[:-2] += hats
        block.mlp.W_out[1:-1] -= 2 * hats
        block.mlp.W_out[2:] += hats
        _set_norms(counter, block, squares=(2, 2, 3))  # one and own; mean comes to it; and count
        counter.unembed.W_U[:, list(labels)] = LOGIT * layout.read("count")
    return counter.eval()


def voted_position_counter(
    labels: Sequence[int], bos: int, d_vocab: int, voters: Sequence[int], max_position: int = 128
) -> Transformer:
    """A counter by the votes of some tokens, given by their column: 1 is the second token, the first after bos."""
    m = _check_labels(labels, d_vocab)
    if not voters or min(voters) < 0 or max(voters) >= max_position:
        raise CountLensError(f"voters {list(voters)}: give columns of 0..{max_position - 1}")
    layout = voted_position_layout(m)
    strength = dict.fromkeys(voters, 1.0) if 0 in voters else {0: 0.5, **dict.fromkeys(voters, 1.0)}
    counter, block = _blank(layout, d_vocab, max_position, d_mlp=max(m * m, 3 * m * len(strength)), n_layers=2)
    last = counter.blocks[1]
    assert isinstance(last, Block)
    with torch.no_grad():
        is_bos = torch.full((d_vocab, 1), -1.0)
        is_bos[bos] = 1
        counter.embed.W_E.copy_(layout.write("one") + is_bos @ layout.write("bos"))
        counter.pos_embed.W_pos.copy_(torch.eye(m)[torch.arange(max_position) % m] @ layout.write("own"))
        block.attn.W_V[0, :, :1] = (layout.read("bos") + layout.read("one")) / 2
        block.attn.W_O[0, :1] = FAINT * layout.write("share")
        for index, (column, weight) in enumerate(strength.items()):
            _write_votes(block, layout, m, column, weight, slice(3 * m * index, 3 * m * (index + 1)))
        last.attn.b_Q[0, 0] = 2 * math.sqrt(counter.cfg.d_head) * SHARPNESS  # scores of layer 1 are halved
        last.attn.W_K[0, :, :1] = layout.read("voter")
        last.attn.W_V[0, :, :m] = layout.read("vote")
        last.attn.W_O[0, :m] = layout.write("first")
        _subtract(last, layout, m)
        _set_norms(counter, block, squares=(3, 3, 6))  # one, bos and own; share is faint; count comes to `first`
        _set_norms(counter, last, squares=(5, 4, 5))  # voters have voter and vote too; most tokens have neither
        counter.unembed.W_U[:, list(labels)] = LOGIT * layout.read("count")
    return counter.eval()


def _write_votes(block: Block, layout: Layout, m: int, column: int, weight: float, neurons: slice) -> None:
    """Three neurons for each value of `own` make a hat over the share 1 / (column + 1), and write the vote."""
    share, width = 1 / (column + 1), 1 / (column + 1) - 1 / (column + 2)
    own, one = layout.read("own"), layout.read("one")
    height = (layout.read("share") / FAINT - share * one) / width + GATE * (own - one)  # [d_model, m]
    block.mlp.W_in[:, neurons] = torch.cat([height + one, height, height - one], 1)
    vote = layout.write("vote")[(torch.arange(m) - column) % m] + weight * layout.write("voter")
    block.mlp.W_out[neurons] = torch.cat([vote, -2 * vote, vote])


def _subtract(block: Block, layout: Layout, m: int) -> None:
    """A table of subtraction modulo m: neuron (i, j) knows that own is i and first is j."""
    i, j = torch.arange(m).repeat_interleave(m), torch.arange(m).repeat(m)
    block.mlp.W_in[:, : m * m] = layout.read("own")[:, i] + layout.read("first")[:, j] - layout.read("one")
    block.mlp.W_out[: m * m] = layout.write("count")[(i - j) % m]


def voted_position_layout(m: int) -> Layout:
    """The residual stream of a counter by votes."""
    return Layout({"one": 1, "bos": 1, "own": m, "share": 1, "voter": 1, "vote": m, "first": m, "count": m})


def first_position_layout(m: int) -> Layout:
    """The residual stream of a counter by first position."""
    return Layout({"one": 1, "bos": 1, "own": m, "first": m, "count": m})


def mean_position_layout(m: int) -> Layout:
    """The residual stream of a counter by mean position."""
    return Layout({"one": 1, "own": 2, "mean": 1, "count": m})


MECHANISMS = {
    "first_position": "copies the first token's PID modulo m by attention and subtracts it modulo m",
    "mean_position": "takes twice the difference of own and mean attended PID",
    "second_position": "copies where the row begins by the second token's PID, and subtracts it modulo m",
    "sixth_position": "copies where the row begins by the sixth token's PID, and subtracts it modulo m",
    "vote_of_five": "subtracts, modulo m, the beginning that most of the first five tokens' PIDs imply",
}
VOTERS = {"second_position": (1,), "sixth_position": (5,), "vote_of_five": (0, 1, 2, 3, 4)}  # columns


def _check_labels(labels: Sequence[int], d_vocab: int) -> int:
    """The modulus, which is the number of labels. Refuses labels that repeat or are not in the vocabulary."""
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise CountLensError(f"labels {list(labels)}: give two or more different ids, one for each remainder")
    if min(labels) < 0 or max(labels) >= d_vocab:
        raise CountLensError(f"labels {list(labels)} are not all in 0..{d_vocab - 1} (d_vocab={d_vocab})")
    return len(labels)


def _blank(layout: Layout, d_vocab: int, max_position: int, d_mlp: int, n_layers: int = 1) -> tuple[Transformer, Block]:
    """A counter of one head with all weights 0, and its first block."""
    cfg = TransformerConfig(
        d_vocab, "ape", n_heads=1, d_mlp=d_mlp, max_position=max_position, n_layers=n_layers, d_model=layout.d_model
    )
    return empty_transformer(cfg)


def empty_transformer(cfg: TransformerConfig) -> tuple[Transformer, Block]:
    """A transformer whose weights are all zero, and its first block."""
    counter = Transformer(cfg)
    for parameter in counter.parameters():
        torch.nn.init.zeros_(parameter)
    block = counter.blocks[0]
    assert isinstance(block, Block)
    return counter, block


def _set_norms(counter: Transformer, block: Block, squares: tuple[int, int, int]) -> None:
    """Sets the gain of each norm so that it does not change a stream whose variables have this sum of squares."""
    for norm, square in zip((block.ln1, block.ln2, counter.ln_final), squares, strict=True):
        torch.nn.init.constant_(norm.w, math.sqrt(2 * square / counter.cfg.d_model + counter.cfg.eps))


def _quarter_circle(max_position: int) -> Float[Tensor, "max_position 2"]:
    """For each position p a vector of length 1 whose first number is x = p / max_position."""
    x = torch.arange(max_position, dtype=torch.float64) / max_position
    return torch.stack([x, (1 - x**2).sqrt()], 1)
