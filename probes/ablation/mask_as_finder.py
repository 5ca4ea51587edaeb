"""Does the causal mask find the first token? It is opened for the first token, and closed for later ones.

The paper: in rows of several kinds of tokens a causal counter without position ids knows its first token, because that
one alone sees nothing but itself. Then two interventions on the mask should turn the answers round, in every layer:

    opened    the first token also sees one later token, of another kind: it should no longer answer "first"
              control: a later token of its own kind, which shows it nothing new (if rows have several kinds)
    closed    a later token sees nothing but itself: it should answer "first"
              control: one other token is hidden from it

A counter that is trained without the mask should not know its first token in the first place.
"""

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.counter import Counter
from models.shapes import HeadVectors
from models.transformer import Transformer
from probes.ablation.edits import Hooks
from probes.ablation.outcomes import CausalTest, Outcome, graded
from probes.ablation.score_hooks import Scores, score_hooks
from probes.result import SHARE, Headline, NotApplicable, Verdict, task_of_counter
from probes.stats import Interval, share_interval
from training.batches import Batch, draw_batch, position_range
from training.evaluate import evaluating

ROWS = 128
RECOGNISED = 0.5  # of first tokens
LABELS = {"yes": "the mask finds the first token", "in part": "the mask finds it in part", "no": "not by the mask"}
NOT_KNOWN = "the first token is not recognised"

Columns = Int[Tensor, "row"]


@dataclass(frozen=True)
class MaskAsFinder(CausalTest):
    """What opening and closing the causal mask does to the answers."""

    task: str
    causal: bool
    recognised: Interval  # share of first tokens
    outcomes: tuple[Outcome, ...]  # opened, then closed; none without a mask, or where nothing is recognised

    @property
    def worst(self) -> Outcome:
        """The intervention that turns the fewest answers."""
        return min(self.outcomes, key=lambda outcome: outcome.share.value)

    @property
    def headline(self) -> Headline:
        if not self.outcomes:
            return Headline.of(NOT_KNOWN, "first tokens that are recognised (share)", self.recognised, SHARE)
        measure = "answers that turn round with the mask (share, the worse of two ways)"
        label = LABELS[graded(self.worst)] if self.worst.control is not None else LABELS[self._without_control()]
        return Headline.of(label, measure, self.worst.share, SHARE)

    def _without_control(self) -> str:
        """In rows of one kind of token there is no control for the opened mask: no answer may turn of itself."""
        share = self.worst.share
        return "no" if share.low <= 0.05 else "yes" if share.low > RECOGNISED else "in part"

    @property
    def verdict(self) -> Verdict:
        known = f"{self.recognised.value:.0%} of first tokens are recognised"
        with_mask = "" if self.causal else " without a causal mask"
        if not self.outcomes:
            agrees = None if self.causal else True
            return Verdict(f"{known}{with_mask}.", f"more than {RECOGNISED:.0%} recognised", agrees)
        opened, closed = self.outcomes
        sentence = (
            f"{self.headline.label[0].upper()}{self.headline.label[1:]}: {known}; of those that may also see one later "
            f"token {opened.text} are no longer; of later tokens that see only themselves {closed.text} are taken for "
            "the first."
        )
        return Verdict(sentence, "answers that stay as they are when the mask is changed", self._agrees())

    def _agrees(self) -> bool | None:
        """The paper says so of rows with several kinds of tokens."""
        if self.outcomes[0].control is None:
            return None
        return self.causal and graded(self.worst) != "no"


def mask_as_finder(counter: Counter, rows: int = ROWS, seed: int = 0) -> MaskAsFinder:
    """Opens and closes the causal mask of a counter that is trained to tell its first token."""
    task, policy = task_of_counter(counter)
    generator = torch.Generator(counter.device).manual_seed(seed)
    if not isinstance(counter, Transformer) or counter.scheme.bias is not None:
        raise NotApplicable("only attention by queries and keys alone has a mask that can be opened")
    batch = draw_batch(task, policy, position_range(counter, task), "ind", rows, generator)
    scored = task.scored("ind", batch.label_ids)
    if bool(scored[:, 1:].any()) or batch.label_ids.shape[1] < 3:
        raise NotApplicable(f"{task.name} does not ask for the first token")
    first, other = batch.label_ids[0, :2].tolist()
    answers = _answers(counter, batch, ())
    known = answers[:, 0] == first
    recognised = share_interval(known.cpu())
    if not counter.cfg.causal or recognised.value < RECOGNISED:
        return MaskAsFinder(task.name, counter.cfg.causal, recognised, ())
    return MaskAsFinder(
        task.name,
        True,
        recognised,
        (_open(counter, batch, known, first, generator), _close(counter, batch, answers, other, first, generator)),
    )


def _open(
    counter: Transformer, batch: Batch, known: Bool[Tensor, "row"], first: int, generator: torch.Generator
) -> Outcome:
    """The first token sees one later token, of another kind or of its own."""
    same = batch.token_ids[:, 1:] == batch.token_ids[:, :1]
    several = bool((~same).any())
    groups = [~same, same] if several else [same]
    shares = []
    for allowed in groups:
        there = allowed.any(1)
        column = 1 + torch.multinomial(allowed.float() + ~there[:, None], 1, generator=generator)[:, 0]
        hooks = score_hooks(counter, partial(_opened, column=column))
        turned = _answers(counter, batch, hooks)[:, 0] != first
        shares.append(share_interval(turned[known & there].cpu()))
    what = "of another kind" if several else "(all are of one kind)"
    return Outcome(f"sees one later token {what}", "first token", "no longer first", *shares)


def _close(
    counter: Transformer,
    batch: Batch,
    answers: Int[Tensor, "row pos"],
    other: int,
    first: int,
    generator: torch.Generator,
) -> Outcome:
    """A later token sees only itself; control: it sees all but one of the earlier ones."""
    n_rows, n_pos = batch.token_ids.shape
    column = torch.randint(2, n_pos, (n_rows,), generator=generator, device=generator.device)
    hidden = (torch.rand(n_rows, generator=generator, device=generator.device) * column).long()
    row, keys = torch.arange(n_rows, device=column.device), torch.arange(n_pos, device=column.device)
    judged = answers[row, column] == other
    shares = []
    for visible in (keys == column[:, None], keys != hidden[:, None]):
        hooks = score_hooks(counter, partial(_closed, column=column, visible=visible))
        shares.append(share_interval((_answers(counter, batch, hooks)[row, column] == first)[judged].cpu()))
    return Outcome("sees only itself", "a later token", "taken for the first", *shares)


def _answers(counter: Counter, batch: Batch, hooks: Hooks) -> Int[Tensor, "row pos"]:
    with evaluating(counter), counter.hooks(fwd_hooks=list(hooks)):
        return counter(batch.token_ids, batch.position_ids).argmax(-1)


def _opened(scores: Scores, q: HeadVectors, k: HeadVectors, scale: float, column: Columns) -> Scores:
    row = torch.arange(len(column), device=column.device)
    scores[row, :, 0, column] = torch.einsum("bhd,bhd->bh", q[:, 0], k[row, column]) * scale
    return scores


def _closed(
    scores: Scores, q: HeadVectors, k: HeadVectors, scale: float, column: Columns, visible: Bool[Tensor, "row key"]
) -> Scores:
    row = torch.arange(len(column), device=column.device)
    scores[row, :, column] = scores[row, :, column].masked_fill(~visible[:, None], -torch.inf)
    return scores
