"""The paper as a walk: for each of its claims, what probes add to our scores, and the views that show it.

Links name a task and an architecture, and lead to whatever seed of it is there.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

from app.explorer.catalogue import Catalogue, Entry
from app.explorer.registry import PAGES
from training.paper.finding import Line


@dataclass(frozen=True)
class View:
    """A page of the explorer with everything chosen."""

    label: str
    page: str  # key of PAGES
    counter: str = ""  # the beginning of its name, as mod10/ape-2L
    versus: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def address(self, catalogue: Catalogue) -> str | None:
        """Its address below the explorer's; None where a counter is not there."""
        parameters = dict(self.settings)
        for name, cell in (("counter", self.counter), ("versus", self.versus)):
            if cell:
                entry = find_entry(catalogue, cell)
                if entry is None:
                    return None
                parameters[name] = entry.name
        path = "./" if self.page == next(iter(PAGES)) else self.page  # the page that opens first has no path
        return f"{path}?{urlencode(parameters)}" if parameters else path


@dataclass(frozen=True)
class ClaimProbe:
    """A probe that is run on several counters, and what its results say. Both are imported on use: they need torch."""

    probe: str  # module:function
    cells: Mapping[str, str]  # by architecture: the beginning of a counter's name
    lines: str  # function of app.explorer.inside

    @property
    def function(self) -> Callable[..., Any]:
        """The probe."""
        module, _, name = self.probe.partition(":")
        return getattr(import_module(module), name)

    def judge(self, results: Mapping[str, Any]) -> Iterator[Line]:
        """What the results say, by architecture."""
        return getattr(import_module("app.explorer.inside"), self.lines)(results)


@dataclass(frozen=True)
class Stop:
    """A claim's place in the walk."""

    views: tuple[View, ...]
    inside: ClaimProbe | None = None


def find_entry(catalogue: Catalogue, cell: str) -> Entry | None:
    """A sound counter of this task and architecture."""
    return next((entry for entry in catalogue.sound if entry.name.startswith(f"{cell}/")), None)


def _cells(task: str, layers: int, *architectures: str) -> dict[str, str]:
    return {name: f"{task}/{name}-{layers}L" for name in architectures}


STOPS: dict[str, Stop] = {  # by claim: key of CLAIMS
    "succession": Stop(
        (
            View(
                "sine and ape count to 50 and stop",
                "behaviour",
                *("vanilla_succession/sine-2L", "vanilla_succession/ape-2L"),
                {"length": "60"},
            ),
        )
    ),
    "helper": Stop(
        (View("rope goes on, sine loses its way", "behaviour", "helper/rope-2L", "helper/sine-2L", {"length": "80"}),)
    ),
    "shifted start": Stop(
        (
            View(
                "rope with four layers, and ape",
                "behaviour",
                *("shifted_start/rope-4L", "shifted_start/ape-2L"),
                {"length": "60"},
            ),
        )
    ),
    "far extrapolation": Stop(
        (View("all counters from a shifted start", "zoo", settings={"folder": "shifted_start"}),)
    ),
    "modular": Stop(
        (
            View("ape goes on, spe breaks off", "behaviour", "mod10/ape-2L", "mod10/spe-2L", {"length": "70"}),
            View("sine goes on too", "behaviour", "mod10/sine-2L", settings={"length": "90", "shift": "30"}),
            View("nope and rope never start", "behaviour", "mod10/nope-2L", "mod10/rope-2L"),
            View("all seeds of ape", "zoo", settings={"cell": "mod10/ape-2L"}),
            View("all seeds of sine", "zoo", settings={"cell": "mod10/sine-2L"}),
        )
    ),
    "selective": Stop(
        (View("nope and spe on one row", "behaviour", "selective/nope-2L", "selective/spe-2L", {"length": "80"}),)
    ),
    "first token": Stop(
        (View("ape and nope, place by place", "first-token", "mod10/ape-2L", "mod10/nope-2L"),),
        ClaimProbe(
            "probes.reading.first_token:first_token_probe",
            _cells("mod10", 2, "ape", "sine", "spe", "nope", "rope"),
            "first_token_lines",
        ),
    ),
    "clusters": Stop(
        (
            View(
                "ape goes round in ten steps, spe does not",
                "pid-pca",
                *("mod10/ape-2L", "mod10/spe-2L"),
                {"site": "mlp_post", "layer": "1"},
            ),
        ),
        ClaimProbe("probes.reading.mod_pca:mod_pca", _cells("mod10", 2, "ape", "sine", "spe"), "cluster_lines"),
    ),
    "subtraction": Stop(
        (
            View("move the first token's position", "behaviour", "mod10/ape-2L", "", {"move": "first token +3"}),
            View("move those of the first five", "behaviour", "mod10/ape-2L", "", {"move": "first five +3"}),
            View("what ape does instead, by swaps", "mechanism", "mod10/ape-2L", settings={"mechanism": "true"}),
        ),
        ClaimProbe("probes.mechanism.anchors:anchor_probe", _cells("mod10", 2, "ape", "sine"), "subtraction_lines"),
    ),
    "attention": Stop(
        (View("rope's and ape's scores", "attention", "selective-bos/rope-1L", "selective-bos/ape-1L"),),
        ClaimProbe(
            "probes.reading.attention_variation:attention_variation",
            _cells("selective-bos", 1, "rope", "nope", "sine", "ape", "spe"),
            "attention_lines",
        ),
    ),
    "bos": Stop(
        (
            View("rope without and with bos", "behaviour", "mod10/rope-2L", "mod10-bos/rope-2L"),
            View("cut bos off", "bos-ablation", "mod10-bos/rope-2L", "mod10-bos/nope-2L"),
        ),
        ClaimProbe("probes.ablation.bos_ablation:bos_ablation", _cells("mod10-bos", 2, "nope", "rope"), "bos_lines"),
    ),
    "recurrent": Stop(
        (
            View("LSTM goes on, RWKV-6 does not", "behaviour", "mod10/lstm-1L", "mod10/rwkv6-1L", {"length": "70"}),
            View("the LSTM's state goes round", "states", "mod10/lstm-1L", settings={"picture": "circle"}),
        )
    ),
    "medians": Stop((View("how near all seeds are to the paper", "zoo", settings={"near": "true"}),)),
}
