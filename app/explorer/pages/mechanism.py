"""Which stated algorithm a counter follows: claims, implied distances, places, seeds, and the swaps behind a number."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.explorer import state
from app.explorer.cache import SharedCounter, open_copy
from app.explorer.call import Call
from app.explorer.page import WIDE, Note, Panel, Panels, panel_of, spread_panel
from app.explorer.pages import patching
from app.explorer.progress import with_progress
from app.explorer.snapshots import open_snapshots
from app.figures.mechanisms import places_figure
from app.figures.swaps import distances_figure, hypotheses_figure, swaps_figure
from models.transformer import Transformer
from probes.mechanism.hypotheses import hypotheses_of
from probes.mechanism.swapped_tokens import swapped_tokens
from probes.mechanism.verdict import Mechanisms, mechanisms
from probes.result import NotApplicable, task_of_counter

WIDTH = 420  # of a widget, in pixels


@dataclass(frozen=True)
class Settings:
    test: bool  # whether the switch is on: it takes a while
    hypothesis: str
    variable: str  # the swaps of which are shown; empty: there are none
    over_training: bool  # whether every snapshot is tested as well


def controls(subject: SharedCounter) -> Settings:
    """A widget for the claim whose swaps are shown."""
    test = state.toggle("mechanism", "Test the mechanism", help="Up to a minute, once for each counter")
    claims = _claims(subject)
    if not claims or not test:
        return Settings(test, "", "", over_training=False)
    hypothesis, _, variable = state.select("claim", "Show the swaps of", claims, width=WIDTH).partition(": ")
    over_training = state.toggle(
        "over_training", "Over training", help="Tests every snapshot: up to some minutes, once"
    )
    return Settings(test, hypothesis, variable, over_training)


def _claims(subject: SharedCounter) -> list[str]:
    """Every variable of every hypothesis that has swaps of its own, as `hypothesis: variable`."""
    if not isinstance(subject.counter, Transformer):
        return []
    try:
        task, _ = task_of_counter(subject.counter)
        hypotheses = hypotheses_of(subject.counter, task)
    except NotApplicable:
        return []
    return [
        f"{name}: {variable.name}"
        for name, hypothesis in hypotheses.items()
        if hypothesis.swaps_of not in hypotheses
        for variable in hypothesis.variables
    ]


def panels(subject: SharedCounter, settings: Settings) -> Panels:
    """The verdict with every claim, claims by implied distance, the swaps of one, and where variables were sought."""
    if not settings.test:
        yield Note("Switch the test on: it swaps variables of stated algorithms between rows, for up to a minute.")
        return
    yield patching.mechanism_panel(subject)
    if not isinstance(subject.counter, Transformer):
        return
    tested = open_copy(subject).call(mechanisms)
    result = tested.value
    yield Panel(
        "By the distance that a swap implies",
        Call(distances_figure, tested),
        result.to_frame,
        "A swap implies a distance from the row's beginning: one of training, none (below 1), or one beyond. A click "
        "on a cell shows its swaps below.",
        chooses={"claim": _claims(subject)},
        least_width=WIDE,
    )
    yield _swaps(subject, settings, result)
    if result.searched:
        places = Call(places_figure, tested)
        yield Panel("Where each variable was sought, by layer", places, result.places_frame, least_width=WIDE)
    if settings.over_training:
        steps = {str(step): snapshot for step, snapshot in open_snapshots(subject).items()}
        panel = _hypotheses("Hypotheses, over training", steps, "step")
        yield replace(panel, chooses={"step": list(steps)})


def _swaps(subject: SharedCounter, settings: Settings, result: Mechanisms) -> Panel | Note:
    places = [
        claim.place
        for tested in result.hypotheses
        if tested.name == settings.hypothesis
        for claim in tested.claims
        if claim.variable == settings.variable
    ]
    if not places:
        return Note(f"This counter has no swaps of {settings.hypothesis}: {settings.variable}.")
    swaps = open_copy(subject).call(swapped_tokens, settings.hypothesis, settings.variable, places[0])
    return panel_of("Swap by swap", swaps_figure, swaps, least_width=WIDE)


def spread(subjects: list[SharedCounter], settings: Settings) -> Panels:
    """Every hypothesis, seed by seed."""
    seeds = {subject.run: open_copy(subject) for subject in subjects if isinstance(subject.counter, Transformer)}
    if seeds and settings.test:
        yield _hypotheses("Hypotheses, by seed", seeds, "seed")


def _hypotheses(caption: str, counters: Mapping[str, SharedCounter], of: str) -> Panel:
    """What each hypothesis explains of several counters, by their names."""
    results = {name: counter.call(mechanisms) for name, counter in counters.items()}
    for _, result in with_progress(results, f"Testing {of}"):
        _ = result.value
    panel = spread_panel(caption, hypotheses_figure, results, of)
    sentence = (
        "Darker where the worst claim of a hypothesis surely explains more than its best null; a cell says how often "
        "that claim comes out, and its grade."
    )
    return replace(panel, sentence=f"{sentence} {panel.sentence}", least_width=WIDE)
