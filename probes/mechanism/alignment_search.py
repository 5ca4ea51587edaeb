"""Distributed alignment search: the directions of a place in which a swap does what an algorithm says, by training.

`probes.mechanism.verdict` looks only where activations follow a variable openly. A counter may hold it in directions
that no fit finds; TransformerLens' search (Geiger et al. 2024) learns them from the algorithm's own predictions. It can
also learn what is not there, so the same search is made for arbitrary answers and on an untrained counter.
"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.families import build_counter
from models.transformer import Transformer
from probes.mechanism.hypotheses import Hypothesis, Query, Variable, hypotheses_of
from probes.mechanism.interchange import Basis, Swapper
from probes.mechanism.places import SUBSPACE_KINDS, Place
from probes.mechanism.swap_pairs import SwapPairs, draw_pairs
from probes.result import Result, Verdict, task_of_counter
from probes.stats import Interval, share_interval
from training.tasks import Task

RANK = 8
N_PAIRS = 384  # to learn from
N_HELD_OUT = 256
EPOCHS = 20
LEARNING_RATE = 1e-2


@dataclass(frozen=True)
class AlignmentSearch(Result):
    """How often swaps along learned directions come out, on pairs that were not learned from."""

    hypothesis: str
    variable: str
    place: str
    rank: int
    accuracy: Interval
    arbitrary: Interval  # learned for arbitrary answers instead of the algorithm's
    untrained: Interval  # learned on an untrained counter

    @property
    def found(self) -> bool:
        """Whether the algorithm's answers are learned better than in both controls."""
        return self.accuracy.low > max(self.arbitrary.high, self.untrained.high)

    @property
    def verdict(self) -> Verdict:
        share, low, control = self.accuracy.value, self.accuracy.low, max(self.arbitrary.value, self.untrained.value)
        says = "hold" if self.found else "do not hold"
        return Verdict(
            f"{self.rank} learned directions of {self.place} {says} {self.variable} of {self.hypothesis}: "
            f"{share:.0%} of swaps come out (from {low:.0%}), {control:.0%} at most in the controls.",
            "controls that reach as much" if self.found else "swaps that come out more often than in the controls",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line for the counter and a line per control."""
        rows = {"counter": self.accuracy, "arbitrary": self.arbitrary, "untrained": self.untrained}
        return pd.DataFrame([{"learned": name} | vars(interval) for name, interval in rows.items()])


def alignment_search(
    counter: Counter,
    hypothesis: str,
    variable: str,
    kind: str = "attn_out",
    layer: int = 0,
    rank: int = RANK,
    epochs: int = EPOCHS,
    pairs: int = N_PAIRS,
    seed: int = 0,
) -> AlignmentSearch:
    """Learns the directions of a place that hold a hypothesis' variable, and scores them on other pairs."""
    task, _ = task_of_counter(counter)
    hypotheses = hypotheses_of(counter, task)
    assert isinstance(counter, Transformer)
    algorithm, swap_variable = _choose(hypotheses, hypothesis, variable)
    if kind not in SUBSPACE_KINDS:
        raise unknown("place", kind, SUBSPACE_KINDS)
    if not 0 <= layer < counter.cfg.n_layers or not 0 < rank < counter.cfg.d_model:
        raise CountLensError(
            f"layer {layer}, rank {rank}: layers are 0..{counter.cfg.n_layers - 1}, ranks 1..{counter.cfg.d_model - 1}"
        )
    place = Place((kind,), (layer,), within=(hypothesis, variable))
    learn, judge = (
        draw_pairs(counter, task, {hypothesis: algorithm}, number, seed + extra)
        for number, extra in ((pairs, 1_000_003), (N_HELD_OUT, 2_000_003))
    )
    search = _Search(task, algorithm, swap_variable, place, learn, judge, rank, epochs, seed)
    untrained = build_counter(counter.cfg, torch.Generator().manual_seed(seed)).to(counter.device)
    assert isinstance(untrained, Transformer)
    return AlignmentSearch(
        hypothesis,
        variable,
        f"L{layer} {kind}",
        rank,
        search.accuracy(counter),
        search.accuracy(counter, arbitrary=True),
        search.accuracy(untrained),
    )


@dataclass(frozen=True)
class _Search:
    """Pairs to learn directions from, and others to score them on."""

    task: Task
    hypothesis: Hypothesis
    variable: Variable
    place: Place
    learn: SwapPairs
    judge: SwapPairs
    rank: int
    epochs: int
    seed: int

    def accuracy(self, counter: Transformer, arbitrary: bool = False) -> Interval:
        """How often swaps come out on the held-out pairs, along directions that were learned from the others."""
        basis = self._directions(counter, *self._targets(self.learn, arbitrary))
        answers = Swapper(counter, self.judge, [self.place], {self.place: basis @ basis.T}).answers(self.place)
        expected, tells = self._targets(self.judge, arbitrary)
        return share_interval((answers == expected)[tells])

    def _directions(self, counter: Transformer, targets: Int[Tensor, "row"], tells: Bool[Tensor, "row"]) -> Basis:
        """Directions in which swaps give the targets, on the pairs that tell something."""
        from transformer_lens.tools.analysis.interchange import fit_das  # slow: 1.5 s

        base, source = self.learn.base, self.learn.source
        token_ids = torch.cat([base.token_ids[tells], source.token_ids[tells]])
        position_ids = torch.cat([base.position_ids[tells], source.position_ids[tells]])
        column = torch.cat([self.learn.column[tells], self.learn.source_column[tells]])
        n_pairs = int(tells.sum())
        pair = torch.arange(n_pairs, device=counter.device)

        def logits(index: Int[Tensor, "pair"]) -> Tensor:
            """Rows are passed by their number, so that each has its own position ids and token that answers."""
            rows = counter(token_ids[index], position_ids[index])
            return rows[torch.arange(len(index), device=index.device), column[index]]

        where = {"base_positions": column[:n_pairs], "source_positions": column[n_pairs:]}
        how = {"rank": self.rank, "epochs": self.epochs, "lr": LEARNING_RATE, "seed": self.seed}
        was_training = counter.training
        counter.eval()
        try:
            hook = self.place.hooks[0]
            return fit_das(counter, hook, pair, pair + n_pairs, targets[tells], logits, **where, **how).basis
        finally:
            counter.train(was_training)

    def _targets(self, pairs: SwapPairs, arbitrary: bool) -> tuple[Int[Tensor, "row"], Bool[Tensor, "row"]]:
        """What swaps should give: by the algorithm, or a fixed arbitrary answer for each value that is swapped in."""
        prediction = pairs.predict(self.task, self.hypothesis, self.variable, self.place)
        expected, tells = prediction.answers, prediction.tells
        if not arbitrary:
            return expected, tells
        from transformer_lens.tools.analysis.interchange import arbitrary_targets

        answers = expected[tells].unique()
        source = self.variable.value(Query.of(pairs.source, pairs.row, pairs.source_column))
        keys = list(zip(pairs.labels.tolist(), source.tolist(), strict=True))
        return answers[arbitrary_targets(keys, len(answers), self.seed).to(answers.device)], tells


def _choose(hypotheses: dict[str, Hypothesis], hypothesis: str, variable: str) -> tuple[Hypothesis, Variable]:
    if hypothesis not in hypotheses:
        raise unknown("hypothesis", hypothesis, hypotheses)
    variables = {known.name: known for known in hypotheses[hypothesis].variables}
    if variable not in variables:
        raise unknown("variable", variable, variables)
    return hypotheses[hypothesis], variables[variable]
