"""The path of a recurrent counter's state while it reads equal tokens, and whether it is a circle.

A counter that counts modulo m without end needs a state that returns after m steps. The simplest such path is a circle
on which every token turns the state by k/m of a turn. States also drift, as an LSTM's cells do. So their running mean
over one round is subtracted, which does not change anything of period m. On the first half of the row, the plane is
fitted in which most of the rest turns k times in m steps,

    state[pos] - running mean = A cos(2 pi k pos / m) + B sin(2 pi k pos / m),

scaled so that the circle's radius is 1. In so many dimensions some plane always fits, so it is tested on the second
half: the state is on the circle if it keeps its radius there and its angles are those that the first half predicts.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.recurrent import Recurrent
from probes.inputs.equal_tokens import equal_token_activations, n_untested
from probes.reading.pca import principal_components
from probes.reading.periods import USUAL_MODULUS
from probes.result import NotApplicable, Result, Verdict, task_of_counter
from probes.sites import Site
from training.tasks import NOT_SCORED

COMPONENTS = 3
LEAST_MODULUS = 3  # two points are no circle
LEAST_ROUNDS = 5  # of these, the running mean costs one, and the others are halved
LOCKED = 0.9  # smallest mean cosine between angle and predicted angle of a circle
KEPT = (0.5, 2.0)  # range of the radius in the second half, relative to the first
NOTHING = 1e-6  # share of a state's variance that counts as rounding


@dataclass(frozen=True)
class Circle:
    """The plane in which the state turns most, and the state's coordinates in it."""

    modulus: int
    turns: int  # in `modulus` steps
    share: float  # of the variance without drift, in the first half
    positions: Int[np.ndarray, "place"]  # in the row, without the ends that the running mean needs
    xy: Float[np.ndarray, "place 2"]  # the fitted circle has radius 1
    fitted: Bool[np.ndarray, "place"]  # True in the first half, on which the plane was fitted

    @property
    def step(self) -> float:
        """The angle in degrees by which one token should turn the state."""
        return 360 * self.turns / self.modulus

    @cached_property
    def angles(self) -> Float[np.ndarray, "place"]:
        """The angle of the state at each position, in degrees from 0 to 360."""
        return np.degrees(np.arctan2(self.xy[:, 1], self.xy[:, 0])) % 360

    @cached_property
    def steps(self) -> Float[np.ndarray, "between"]:
        """The angle by which each token turns the state, in degrees from -180 to 180."""
        return (np.diff(self.angles) + 180) % 360 - 180

    @property
    def later_steps(self) -> Float[np.ndarray, "between"]:
        """The turns of the second half of the row."""
        return self.steps[~self.fitted[:-1]]

    @property
    def radius(self) -> float:
        """The mean radius in the second half."""
        return float(np.hypot(*self.xy[~self.fitted].T).mean())

    @property
    def lock(self) -> float:
        """The mean cosine, in the second half, between the angle and the angle that the first half predicts."""
        expected = 2 * np.pi * self.turns * self.positions / self.modulus
        return float(np.cos(np.radians(self.angles) - expected)[~self.fitted].mean())

    @property
    def holds(self) -> bool:
        """Whether the second half is on the circle that was fitted to the first."""
        return self.lock >= LOCKED and KEPT[0] <= self.radius <= KEPT[1]

    @property
    def sentence(self) -> str:
        """The path of the state, as a sentence without its subject."""
        part = Fraction(self.turns, self.modulus)
        turn = (
            f"{part.numerator} {'turn' if part.numerator == 1 else 'turns'} in {part.denominator} is {self.step:.0f}°"
        )
        if self.holds:
            return (
                f"goes round: {self.later_steps.mean():.1f}° ± {self.later_steps.std():.1f}° a token ({turn}). "
                f"That is in the second half of the row, where the radius is {self.radius:.0%} of the first half's; "
                f"the plane holds {self.share:.0%} of all that is not drift."
            )
        return (
            f"does not go round in {self.modulus} tokens. From the first half of the row to the second, the radius of "
            f"the best circle ({turn}) goes to {self.radius:.0%}, and the angle agrees by {self.lock:.2f} with where "
            "it should be (1 is exactly, 0 is chance)."
        )


@dataclass(frozen=True)
class StateTrajectory(Result):
    """The states of one layer after each of a row of equal tokens."""

    layer: int
    token: str
    positions: Int[np.ndarray, "pos"]  # 1 is the first of the equal tokens
    counts: tuple[int | None, ...]  # the right answers; None at positions that are not scored
    base: int | None  # the task's base; None if counts do not repeat
    coordinates: Float[np.ndarray, "pos component"]  # principal components
    variance: Float[np.ndarray, "component"]  # share of the variance that each explains
    circle: Circle | None  # None if the state only drifts

    @property
    def verdict(self) -> Verdict:
        if self.circle is None:
            return Verdict(f"The state of layer {self.layer} does nothing but drift.", "a state that comes back")
        if self.circle.holds:
            other = f"radius outside {KEPT[0]} to {KEPT[1]}, or angles that agree by less than {LOCKED}, further on"
        else:
            other = "another modulus, or a longer row"
        return Verdict(f"The state of layer {self.layer} {self.circle.sentence}", other)

    def to_frame(self) -> pd.DataFrame:
        """One line per position; angle and radius are empty at the ends of the row."""
        components = {f"component_{number + 1}": column for number, column in enumerate(self.coordinates.T)}
        frame = pd.DataFrame({"position": self.positions, "count": pd.array(self.counts, dtype="Int64")} | components)
        if self.circle is None:
            return frame
        on_circle = {
            "position": self.circle.positions,
            "angle": self.circle.angles,
            "radius": np.hypot(*self.circle.xy.T),
            "fitted": self.circle.fitted,
        }
        return frame.merge(pd.DataFrame(on_circle), how="left", on="position")


def state_trajectory(
    counter: Counter, layer: int = 0, length: int = 100, modulus: int | None = None, components: int = COMPONENTS
) -> StateTrajectory:
    """The states of a layer after each of `length` equal tokens, and the best circle of `modulus` steps.

    The modulus is by default the task's base, or 10 if it has none.
    """
    if not isinstance(counter, Recurrent):
        raise NotApplicable("a transformer has no state that goes from token to token: it looks back with attention")
    if not 0 <= layer < counter.cfg.n_layers:
        raise unknown("layer", str(layer), map(str, range(counter.cfg.n_layers)))
    task, _ = task_of_counter(counter)
    base: int | None = getattr(task, "base", None)
    modulus = modulus or base or USUAL_MODULUS
    if modulus < LEAST_MODULUS or length < LEAST_ROUNDS * modulus:
        raise CountLensError(
            f"modulus={modulus}, length={length}: a circle needs a modulus of {LEAST_MODULUS} or more and "
            f"{LEAST_ROUNDS} rounds of it"
        )
    token, n_prefix, site = task.kinds[0], task.prefix, Site("state", layer)
    places = np.arange(n_prefix, n_prefix + length)
    states = equal_token_activations(counter, task, places, [site], token)[site]
    coordinates, shares = principal_components(states)
    start = n_untested(task)
    labels = task.label_tokens([*task.prefix_tokens, *[token] * length])[n_prefix:]
    return StateTrajectory(
        layer,
        token,
        np.arange(1, length + 1),
        tuple(None if label == str(NOT_SCORED) else int(label) for label in labels),
        base,
        coordinates[:, :components],
        shares[:components],
        find_circle(coordinates[start:], np.arange(1 + start, length + 1), modulus) if shares.any() else None,
    )


def find_circle(x: Float[np.ndarray, "pos d"], positions: Int[np.ndarray, "pos"], modulus: int) -> Circle | None:
    """The circle that fits consecutive states best; None if they only drift."""
    around = np.ones(modulus + 1 - modulus % 2)
    around[[0, -1]] /= 2 - modulus % 2  # an even round has half a step at either end
    windows = np.lib.stride_tricks.sliding_window_view(x, len(around), axis=0)
    margin = len(around) // 2
    y, positions = x[margin : len(x) - margin] - windows @ (around / modulus), positions[margin : len(x) - margin]
    if (y**2).sum() <= NOTHING * (x**2).sum():
        return None
    fitted = np.arange(len(y)) < len(y) // 2
    planes = {turns: _plane(y[fitted], positions[fitted], turns / modulus) for turns in range(1, (modulus + 1) // 2)}
    power = {turns: float((plane**2).sum() / 2) for turns, plane in planes.items()}
    turns = max(power, key=lambda turns: power[turns])
    share = power[turns] / float((y[fitted] ** 2).sum(1).mean())
    return Circle(modulus, turns, share, positions, y @ np.linalg.pinv(planes[turns], rcond=NOTHING), fitted)


def _plane(y: Float[np.ndarray, "pos d"], positions: Int[np.ndarray, "pos"], frequency: float) -> np.ndarray:
    """The vectors A and B of the wave of this frequency that fits y best, as two rows."""
    angles = 2 * np.pi * frequency * positions
    return np.linalg.lstsq(np.stack([np.cos(angles), np.sin(angles)], 1), y, rcond=None)[0]
