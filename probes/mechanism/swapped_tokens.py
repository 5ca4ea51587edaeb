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
    tells: bool  # whether the prediction is nobody's own answer, so that it counts
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
    own = hypotheses[hypotheses[hypothesis].swaps_of or hypothesis]
    name = hypotheses[hypothesis].swaps_of or hypothesis
    chosen = {one.name: one for one in own.variables}
    if variable not in chosen:
        raise CountLensError(f"{variable} is no variable of {hypothesis}: it has {', '.join(chosen) or 'none'}")
    found = [
        one
        for one in places_of(counter, task, hypotheses)
        if one.label == place and may_hold(one, name, chosen[variable])
    ]
    if not found:
        raise CountLensError(f"{variable} is not sought at {place!r} in this counter")
    drawn = draw_pairs(counter, task, {name: own}, pairs, seed, "near", task.train_length)
    along = variable_directions(counter, task, {name: own}, found[:1], FIT_ROWS, seed)
    swapper = Swapper(counter, drawn, found[:1], along)
    after = swapper.answers(found[0], chosen[variable]).tolist()
    prediction = drawn.predict(task, own, chosen[variable], found[0])
    base, source = (chosen[variable].value(query).tolist() for query in (drawn.query, drawn.source_query(found[0].at)))
    implied = {name: within.tolist() for name, within in prediction.implied.items()}
    positions = drawn.base.position_ids[drawn.row, drawn.column].tolist()
    words = [
        task.vocab.decode([max(answer, 0) for answer in answers])
        for answers in (drawn.labels.tolist(), swapper.own_answers.tolist(), prediction.answers.tolist(), after)
    ]
    scored = (prediction.answers != NOT_SCORED).tolist()
    tokens = tuple(
        SwappedToken(
            int(drawn.column[row]) + 1,
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
    return SwappedTokens(hypothesis, variable, chosen[variable].meaning, place, tokens)
