"""Which stated algorithm a counter follows: claims, implied distances, places, seeds, and the swaps behind a number."""

from dataclasses import dataclass

from app.explorer import state
from app.explorer.cache import SharedCounter, open_copy
from app.explorer.call import Call
from app.explorer.page import Note, Panel, Panels, panel_of, spread_panel
from app.explorer.pages import patching
from app.figures.mechanisms import places_figure
from app.figures.swaps import distances_figure, hypotheses_by_seed, swaps_figure
from models.transformer import Transformer
from probes.mechanism.hypotheses import hypotheses_of
from probes.mechanism.swapped_tokens import swapped_tokens
from probes.mechanism.verdict import Mechanisms, mechanisms
from probes.result import NotApplicable, task_of_counter

WIDTH = 420  # of a widget, in pixels


@dataclass(frozen=True)
class Settings:
    test: bool  # whether somebody wants to wait for it
    hypothesis: str
    variable: str  # the swaps of which are shown; empty: there are none


def controls(subject: SharedCounter) -> Settings:
    """A widget for the claim whose swaps are shown."""
    test = state.toggle("mechanism", "Test the mechanism", help="Up to a minute, once for each counter")
    claims = _claims(subject)
    if not claims or not test:
        return Settings(test, "", "")
    hypothesis, _, variable = state.select("claim", "Show the swaps of", claims, width=WIDTH).partition(": ")
    return Settings(test, hypothesis, variable)


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
        for name, one in hypotheses.items()
        if one.swaps_of not in hypotheses
        for variable in one.variables
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
    found = tested.value
    yield Panel(
        "By the distance that a swap implies",
        Call(distances_figure, tested),
        found.to_frame,
        "A swap implies a distance from the row's beginning: one of training, none (below 1), or one beyond. A click "
        "on a cell shows its swaps below.",
        chooses={"claim": _claims(subject)},
    )
    yield _swaps(subject, settings, found)
    if found.searched:
        yield Panel("Where each variable was sought, by layer", Call(places_figure, tested), found.places_frame)


def _swaps(subject: SharedCounter, settings: Settings, found: Mechanisms) -> Panel | Note:
    places = [
        claim.place
        for tested in found.hypotheses
        if tested.name == settings.hypothesis
        for claim in tested.claims
        if claim.variable == settings.variable
    ]
    if not places:
        return Note(f"This counter has no swaps of {settings.hypothesis}: {settings.variable}.")
    swaps = open_copy(subject).call(swapped_tokens, settings.hypothesis, settings.variable, places[0])
    return panel_of("Swap by swap", swaps_figure, swaps)


def spread(subjects: list[SharedCounter], settings: Settings) -> Panels:
    """Every hypothesis, seed by seed."""
    transformers = [subject for subject in subjects if isinstance(subject.counter, Transformer)]
    if transformers and settings.test:
        results = [open_copy(subject).call(mechanisms) for subject in transformers]
        yield spread_panel("Hypotheses, by seed", hypotheses_by_seed, transformers, results)
