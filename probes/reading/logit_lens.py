"""Logit lens and direct logit attribution, by TransformerLens' own `ActivationCache`.

The *lens* applies the unembedding to the residual stream after the embedding and after each part of every layer. The
*attribution* splits the margin (the logit of the right answer minus the mean logit of the wrong ones) into the
contributions of each head, MLP and embedding. Answers are the labels that occur, not the whole vocabulary. The final
norm's scale is held at its value, so that the contributions add up to the margin exactly.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens import ActivationCache

from models.counter import Counter
from models.families import family_of
from models.hooks import hook_name
from models.transformer import Transformer
from probes.inputs.rows import constant_share, draw_rows
from probes.result import PERCENT, Headline, NotApplicable, Result, Verdict, task_of_counter
from probes.stats import Intervals, bootstrap_mean
from training.batches import Batch
from training.evaluate import evaluating
from training.tasks import MAIN_SPLITS, NOT_SCORED, Split, Task

ROWS_AT_ONCE = 16  # the cache of a wide counter is large
READY = 0.9  # share of the last site's accuracy at which the answer counts as readable


@dataclass(frozen=True)
class LogitLens(Result):
    """Where answers can be read, and which parts write them. Dicts are by split: at IND and at OOD positions."""

    sites: tuple[str, ...]  # embed, L0 attn, L0 mlp, ...: the stream is read after each
    accuracy: dict[str, Intervals]  # percent, by site
    probability: dict[str, Intervals]  # of the right answer, by site
    constant: dict[str, float]  # percent that the best constant answer would get
    by_position: Float[np.ndarray, "site pos"]  # percent; IND rows up to the border, then OOD; NaN: not scored
    trained_up_to: int  # the border: the last position in the row that training scores
    parts: tuple[str, ...]  # embed, position, L0H0, ..., L0 mlp, ...
    attribution: dict[str, Intervals]  # what each part adds to the margin
    margin: dict[str, float]  # the mean margin itself
    worst_error: float  # largest difference between the parts' sum and the margin, at any scored token

    @property
    def ready_at(self) -> dict[str, str | None]:
        """By split, the first site nearly as accurate as the last; None if that is no better than a constant answer."""
        sites: dict[str, str | None] = {}
        for split, means in self.accuracy.items():
            enough = means.value >= READY * means.value[-1]
            learnt = means.low[-1] > self.constant[split]
            sites[split] = self.sites[int(enough.argmax())] if learnt else None
        return sites

    def largest(self, split: str) -> tuple[str, float]:
        """The part that adds most to the margin, and its share of it; NaN if the margin is not positive."""
        index = int(self.attribution[split].value.argmax())
        share = self.attribution[split].value[index] / self.margin[split]
        return self.parts[index], float(share) if self.margin[split] > 0 else float("nan")

    @property
    def headline(self) -> Headline:
        site, means = self.ready_at["ind"], self.accuracy["ind"]
        label = "answers no better than a constant" if site is None else f"answers read from {site} on"
        *_, last = means
        return Headline.of(label, "IND accuracy of the last site (%)", last, PERCENT)

    @property
    def verdict(self) -> Verdict:
        sentences = []
        for split, site in self.ready_at.items():
            percent = f"{self.accuracy[split].value[-1]:.1f} %"
            if site is None:
                sentences.append(f"{split.upper()}: the answers ({percent} right) are no better than a constant one")
                continue
            part, share = self.largest(split)
            sentence = f"{split.upper()}: the answers ({percent} right) are read from {site} on"
            sentences.append(sentence + (f"; {part} adds most to their margin ({share:.0%})" if share > 0 else ""))
        return Verdict(
            "; ".join(sentences) + ".",
            "a lens that reads 90 % of the final accuracy at another site, or another part that adds more; "
            "both are about what the head reads directly, not about what other parts build on",
        )

    def to_frame(self) -> pd.DataFrame:
        """Columns: measure (accuracy, probability, attribution), split, part (or site), value, low, high."""
        frames = []
        measures = (
            ("accuracy", self.sites, self.accuracy),
            ("probability", self.sites, self.probability),
            ("attribution", self.parts, self.attribution),
        )
        for measure, names, splits in measures:
            for split, means in splits.items():
                frames.append(pd.DataFrame({"measure": measure, "split": split, "part": names} | vars(means)))
        return pd.concat(frames, ignore_index=True)


def logit_lens(counter: Counter, rows: int = 64, seed: int = 0) -> LogitLens:
    """The accuracy of the lens at every layer and the attribution of the margin, at IND and at OOD positions."""
    if not all(block.hook_out_is_single_residual_stream for block in counter.blocks):
        raise NotApplicable(
            f"{family_of(counter.cfg)} has no residual stream: each layer replaces what came before, so the head can "
            "read the last layer alone, and what it reads there are the counter's own answers"
        )
    task, policy = task_of_counter(counter)
    batches = {split: draw_rows(counter, task, policy, split, rows, seed) for split in MAIN_SPLITS}
    labels = torch.cat([batch.label_ids.flatten() for batch in batches.values()]).unique()
    answers = labels[labels != NOT_SCORED]
    if len(answers) < 2:
        raise NotApplicable(f"{task.name} has a single answer on rows of these lengths: there is no margin")
    with evaluating(counter):
        readings = {split: _read(counter, task, split, batch, answers) for split, batch in batches.items()}
    return LogitLens(
        sites=_site_names(counter),
        accuracy={split: reading.means(100 * reading.right, seed) for split, reading in readings.items()},
        probability={split: reading.means(reading.probability, seed) for split, reading in readings.items()},
        constant={split: constant_share(batches[split], reading.scored) for split, reading in readings.items()},
        by_position=_by_position(readings["ind"], readings["ood"]),
        trained_up_to=task.prefix + task.train_length,
        parts=_part_names(counter),
        attribution={split: reading.means(reading.parts, seed) for split, reading in readings.items()},
        margin={split: float(reading.means(reading.margin, seed).value[0]) for split, reading in readings.items()},
        worst_error=max(reading.worst_error() for reading in readings.values()),
    )


@dataclass(frozen=True)
class _Reading:
    """The lens and the attribution at every token of a split."""

    right: Float[Tensor, "site batch pos"]
    probability: Float[Tensor, "site batch pos"]
    parts: Float[Tensor, "part batch pos"]
    margin: Float[Tensor, "1 batch pos"]
    scored: Bool[Tensor, "batch pos"]
    weights: Float[Tensor, "batch"]

    def means(self, values: Float[Tensor, "part batch pos"], seed: int) -> Intervals:
        """The mean of each part over the scored tokens, with its interval."""
        sums, counts, weights = (
            tensor.double().cpu().numpy()
            for tensor in ((values * self.scored).sum(-1), self.scored.sum(-1), self.weights)
        )
        return bootstrap_mean(sums, counts, weights, seed)

    def worst_error(self) -> float:
        """The largest difference between the parts' sum and the margin, over all scored tokens."""
        return float((self.parts.sum(0) - self.margin[0]).abs()[self.scored].max())

    def percent_at(self) -> Float[np.ndarray, "site pos"]:
        """Percent right at each site and position; NaN if nothing is scored there."""
        weights = self.scored * self.weights[:, None]
        share = (self.right * weights).sum(1) / weights.sum(0)
        return (100 * share).cpu().numpy()


def _by_position(ind: _Reading, ood: _Reading) -> Float[np.ndarray, "site pos"]:
    """Percent right at each site and position: of IND rows if the position is scored in them, else of OOD rows."""
    near, far = ind.percent_at(), ood.percent_at()
    n_pos = max(near.shape[1], far.shape[1])
    near, far = (np.pad(x, ((0, 0), (0, n_pos - x.shape[1])), constant_values=np.nan) for x in (near, far))
    return np.where(np.isnan(near), far, near)


def _read(counter: Counter, task: Task, split: Split, batch: Batch, answers: Int[Tensor, "answer"]) -> _Reading:
    """The lens and the attribution on a batch, a few rows at a time."""
    chunks: list[tuple[Tensor, ...]] = []
    for start in range(0, len(batch.token_ids), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        labels = batch.label_ids[rows]
        mask = None if counter.cfg.causal else batch.attention_mask[rows]
        logits, cache = counter.run_with_cache(
            batch.token_ids[rows], batch.position_ids[rows], mask, names_filter=_hooks(counter)
        )
        # As `transformer_lens.tools.analysis.logit_lens` reads them, whose import takes 1.5 s.
        stream = cache.accumulated_resid(incl_mid=_has_mid(counter))
        lens = counter.unembed(counter.ln_final(stream.flatten(0, 1))).softmax(-1).unflatten(0, stream.shape[:2])
        at_label = labels.clamp(min=0).expand(len(lens), -1, -1)[..., None]
        chunks.append(
            (
                (lens.argmax(-1) == labels).float(),
                lens.gather(-1, at_label)[..., 0],
                _margins(_contributions(counter, cache, answers), labels, answers),
                _margins(logits[None, :, :, answers], labels, answers),
            )
        )
    right, probability, parts, margin = (torch.cat(tensors, 1) for tensors in zip(*chunks, strict=True))
    return _Reading(right, probability, parts, margin, task.scored(split, batch.label_ids), batch.weights)


def _has_mid(counter: Counter) -> bool:
    """Whether a block has two parts with a hook point between them."""
    return hook_name("resid_mid", 0) in counter.hook_dict


def _hooks(counter: Counter) -> list[str]:
    """The hook points that the lens and the attribution need; caching more would be slow."""
    sites = ("resid_pre", "resid_mid", "resid_post", "z", "mlp_out")
    names = [hook_name(site, layer) for layer in range(counter.cfg.n_layers) for site in sites]
    names += [hook_name("embed"), hook_name("pos_embed"), hook_name("scale")]
    return [name for name in names if name in counter.hook_dict]


def _contributions(
    counter: Counter, cache: ActivationCache, answers: Int[Tensor, "answer"]
) -> Float[Tensor, "part batch pos answer"]:
    """The contribution of each part to the logit of each answer, in the order of `_part_names`."""
    directions = counter.tokens_to_residual_directions(answers).T
    if isinstance(counter, Transformer):
        parts, labels = cache.get_full_resid_decomposition(
            expand_neurons=False, apply_ln=True, project_output_onto=directions, return_labels=True
        )
        parts = parts[[labels.index(label) for label in _transformer_parts(counter).values()]]
    else:
        stream = cache.accumulated_resid(incl_mid=_has_mid(counter))
        parts = cache.apply_ln_to_stack(torch.cat([stream[:1], stream.diff(dim=0)])) @ directions
    # On a stream of zeros a norm returns its bias.
    bias = counter.unembed(counter.ln_final(torch.zeros_like(cache["resid_pre", 0])))[..., answers]
    return torch.cat([parts, bias[None]])


def _margins(
    logits: Float[Tensor, "part batch pos answer"], labels: Int[Tensor, "batch pos"], answers: Int[Tensor, "answer"]
) -> Float[Tensor, "part batch pos"]:
    """The right answer's logit minus the mean of the wrong ones'; meaningless at tokens without a label."""
    index = torch.searchsorted(answers, labels).clamp(max=len(answers) - 1)
    right = logits.gather(-1, index.expand(len(logits), -1, -1)[..., None])[..., 0]
    return (right - logits.mean(-1)) * len(answers) / (len(answers) - 1)


def _inner_names(counter: Counter) -> tuple[str, ...]:
    """The names of a block's parts, in order."""
    if isinstance(counter, Transformer):
        return "attn", "mlp"
    return ("time mix", "channel mix") if _has_mid(counter) else ("block",)


def _site_names(counter: Counter) -> tuple[str, ...]:
    """The names of the places at which the lens reads the stream."""
    layers = range(counter.cfg.n_layers)
    return "embed", *(f"L{layer} {name}" for layer in layers for name in _inner_names(counter))


def _part_names(counter: Counter) -> tuple[str, ...]:
    """The names of the parts into which the margin is split."""
    names = _transformer_parts(counter) if isinstance(counter, Transformer) else _site_names(counter)
    return *names, "final norm's bias"


def _transformer_parts(counter: Transformer) -> dict[str, str]:
    """The names of the parts in the order in which they write, with their names in TransformerLens' decomposition."""
    parts = {"embed": "embed"}
    if counter.scheme.table is not None:
        parts["position"] = "pos_embed"
    for layer in range(counter.cfg.n_layers):
        parts |= {f"L{layer}H{head}": f"L{layer}H{head}" for head in range(counter.cfg.n_heads)}
        parts[f"L{layer} mlp"] = f"{layer}_mlp_out"
    return parts | {"attention biases": "bias"}
