"""Does a counter recognise its first token by the causal mask? The mask is opened for it, and closed for later tokens.

The paper: in rows of several kinds of tokens, a causal counter without position ids recognises its first token, because
only the first token sees nothing but itself. Then two interventions on the mask, in every layer, should change answers:

    opened    the first token also sees one later token, of another kind: it should no longer answer "first"
              control: a later token of its own kind, which adds no information (if rows have several kinds)
    closed    a later token sees nothing but itself: it should answer "first"
              control: only one other token is hidden from it

A counter that is trained without the mask should not recognise its first token at all.
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
from probes.ablation.outcomes import CausalTest, Outcome, grade_outcome
from probes.ablation.score_hooks import AttentionScores, score_hooks
from probes.result import SHARE, Headline, NotApplicable, Verdict, task_of_counter
from probes.stats import Interval, share_interval
from training.batches import Batch, draw_batch, position_range
from training.evaluate import evaluating

ROWS = 128
RECOGNISED = 0.5  # share of first tokens from which on a counter can recognise them
LABELS = {"yes": "the mask finds the first token", "in part": "the mask finds it in part", "no": "not by the mask"}
NOT_KNOWN = "the first token is not recognised"

Columns = Int[Tensor, "row"]


@dataclass(frozen=True)
class MaskAsFinder(CausalTest):
    """How opening and closing the causal mask changes the answers."""

    task: str
    causal: bool
    recognised: Interval  # share of first tokens that are recognised
    outcomes: tuple[Outcome, ...]  # opened, closed; empty without a mask, or if first tokens are not recognised

    @property
    def worst(self) -> Outcome:
        """The intervention that changes the fewest answers."""
        return min(self.outcomes, key=lambda outcome: outcome.share.value)

    @property
    def headline(self) -> Headline:
        if not self.outcomes:
            return Headline.of(NOT_KNOWN, "first tokens that are recognised (share)", self.recognised, SHARE)
        measure = "answers that turn round with the mask (share, the worse of two ways)"
        grade = self._grade_without_control() if self.worst.control is None else grade_outcome(self.worst)
        return Headline.of(LABELS[grade], measure, self.worst.share, SHARE)

    def _grade_without_control(self) -> str:
        """`yes`, `in part` or `no`, for rows of one kind of token, in which the opened mask has no control."""
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
        """Whether the first token is recognised by the mask, as the paper says; None for rows of one kind of token."""
        if self.outcomes[0].control is None:
            return None
        return self.causal and grade_outcome(self.worst) != "no"


def mask_as_finder(counter: Counter, rows: int = ROWS, seed: int = 0) -> MaskAsFinder:
    """How answers change when the mask is opened and closed, in a counter of a first-token task."""
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
    is_known = answers[:, 0] == first
    recognised = share_interval(is_known.cpu())
    if not counter.cfg.causal or recognised.value < RECOGNISED:
        return MaskAsFinder(task.name, counter.cfg.causal, recognised, ())
    return MaskAsFinder(
        task.name,
        True,
        recognised,
        (_open(counter, batch, is_known, first, generator), _close(counter, batch, answers, other, first, generator)),
    )


def _open(
    counter: Transformer, batch: Batch, is_known: Bool[Tensor, "row"], first: int, generator: torch.Generator
) -> Outcome:
    """The share of first tokens that are no longer recognised if they also see one later token."""
    same = batch.token_ids[:, 1:] == batch.token_ids[:, :1]
    several = bool((~same).any())
    groups = [~same, same] if several else [same]
    shares = []
    for allowed in groups:
        has_one = allowed.any(1)
        column = 1 + torch.multinomial(allowed.float() + ~has_one[:, None], 1, generator=generator)[:, 0]
        hooks = score_hooks(counter, partial(_open_mask, column=column))
        turned = _answers(counter, batch, hooks)[:, 0] != first
        shares.append(share_interval(turned[is_known & has_one].cpu()))
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
    """The share of later tokens that are taken for the first if they see only themselves.

    Control: they see all but one of the earlier tokens.
    """
    n_rows, n_pos = batch.token_ids.shape
    column = torch.randint(2, n_pos, (n_rows,), generator=generator, device=generator.device)
    hidden = (torch.rand(n_rows, generator=generator, device=generator.device) * column).long()
    row, keys = torch.arange(n_rows, device=column.device), torch.arange(n_pos, device=column.device)
    judged = answers[row, column] == other
    shares = []
    for visible in (keys == column[:, None], keys != hidden[:, None]):
        hooks = score_hooks(counter, partial(_close_mask, column=column, visible=visible))
        shares.append(share_interval((_answers(counter, batch, hooks)[row, column] == first)[judged].cpu()))
    return Outcome("sees only itself", "a later token", "taken for the first", *shares)


def _answers(counter: Counter, batch: Batch, hooks: Hooks) -> Int[Tensor, "row pos"]:
    """The most likely token at every position, in a run with these hooks."""
    with evaluating(counter), counter.hooks(fwd_hooks=list(hooks)):
        return counter(batch.token_ids, batch.position_ids).argmax(-1)


def _open_mask(
    scores: AttentionScores, q: HeadVectors, k: HeadVectors, scale: float, column: Columns
) -> AttentionScores:
    """The scores with those of the first query added at one later key per row."""
    row = torch.arange(len(column), device=column.device)
    scores[row, :, 0, column] = torch.einsum("bhd,bhd->bh", q[:, 0], k[row, column]) * scale
    return scores


def _close_mask(
    scores: AttentionScores,
    q: HeadVectors,
    k: HeadVectors,
    scale: float,
    column: Columns,
    visible: Bool[Tensor, "row key"],
) -> AttentionScores:
    """The scores with one query per row seeing only the visible keys."""
    row = torch.arange(len(column), device=column.device)
    scores[row, :, column] = scores[row, :, column].masked_fill(~visible[:, None], -torch.inf)
    return scores
