"""The swaps behind one number of `mechanisms`: pair by pair, what was swapped, predicted and answered."""

from dataclasses import dataclass

import pandas as pd

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.transformer import Transformer
from probes.mechanism.directions import variable_directions
from probes.mechanism.examination import FIT_ROWS
from probes.mechanism.hypotheses import hypotheses_of
from probes.mechanism.interchange import Swapper
from probes.mechanism.places import may_hold, places_of
from probes.mechanism.swap_pairs import draw_pairs
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from training.tasks import NOT_SCORED

PAIRS = 40


@dataclass(frozen=True)
class SwappedToken:
    """A token that answers while one variable has the value that it has at a token of another row."""

    position: int  # of the token in its row, from 1
    position_id: int
    value: float  # of the variable, as it is
    swapped_in: float  # its value at the other token
    right: str
    before: str  # the counter's answer with nothing swapped
    predicted: str | None  # by the hypothesis; None: it predicts no answer
    after: str
    tells: bool  # whether the prediction is neither row's own answer, so that it counts
    implies: str  # which distance the swap implies: trained, below 1, or beyond


@dataclass(frozen=True)
class SwappedTokens(Result):
    """Swaps of one variable at one place."""

    hypothesis: str
    variable: str
    meaning: str
    place: str
    tokens: tuple[SwappedToken, ...]

    @property
    def verdict(self) -> Verdict:
        counted = [token for token in self.tokens if token.tells]
        hits = sum(token.after == token.predicted for token in counted)
        return Verdict(
            f"{self.variable} ({self.meaning}) swapped at {self.place}: {hits} of {len(counted)} swaps that tell "
            f"something come out as {self.hypothesis} predicts.",
            "other pairs of rows, or another place",
        )

    def to_frame(self) -> pd.DataFrame:
        """One line per swap."""
        return pd.DataFrame([vars(token) for token in self.tokens])


def swapped_tokens(
    counter: Counter, hypothesis: str, variable: str, place: str, pairs: int = PAIRS, seed: int = 0
) -> SwappedTokens:
    """Swaps of a variable at a place, both named as in the result of `mechanisms`, on pairs of near rows."""
    task, _ = task_of_counter(counter)
    if not isinstance(counter, Transformer):
        raise NotApplicable("swaps between tokens are of attention counters: recurrent ones have a state to transplant")
    hypotheses = hypotheses_of(counter, task)
    if hypothesis not in hypotheses:
        raise unknown("hypothesis", hypothesis, hypotheses)
    name = hypotheses[hypothesis].swaps_of or hypothesis
    algorithm = hypotheses[name]
    variables = {known.name: known for known in algorithm.variables}
    if variable not in variables:
        raise CountLensError(f"{variable} is no variable of {hypothesis}: it has {', '.join(variables) or 'none'}")
    swap_variable = variables[variable]
    candidates = [
        candidate
        for candidate in places_of(counter, task, hypotheses)
        if candidate.label == place and may_hold(candidate, name, swap_variable)
    ]
    if not candidates:
        raise CountLensError(f"{variable} is not sought at {place!r} in this counter")
    at = candidates[0]
    swap_pairs = draw_pairs(counter, task, {name: algorithm}, pairs, seed, "near", task.train_length)
    along = variable_directions(counter, task, {name: algorithm}, [at], FIT_ROWS, seed)
    swapper = Swapper(counter, swap_pairs, [at], along)
    after = swapper.answers(at, swap_variable).tolist()
    prediction = swap_pairs.predict(task, algorithm, swap_variable, at)
    queries = swap_pairs.query, swap_pairs.source_query(at.at)
    base, source = (swap_variable.value(query).tolist() for query in queries)
    implied = {name: within.tolist() for name, within in prediction.implied.items()}
    positions = swap_pairs.base.position_ids[swap_pairs.row, swap_pairs.column].tolist()
    words = [
        task.vocab.decode([max(answer, 0) for answer in answers])
        for answers in (swap_pairs.labels.tolist(), swapper.own_answers.tolist(), prediction.answers.tolist(), after)
    ]
    scored = (prediction.answers != NOT_SCORED).tolist()
    tokens = tuple(
        SwappedToken(
            int(swap_pairs.column[row]) + 1,
            positions[row],
            base[row],
            source[row],
            words[0][row],
            words[1][row],
            words[2][row] if scored[row] else None,
            words[3][row],
            bool(prediction.tells[row]),
            next(name for name, within in implied.items() if within[row]),
        )
        for row in range(pairs)
    )
    return SwappedTokens(hypothesis, variable, swap_variable.meaning, place, tokens)
