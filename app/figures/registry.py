"""Which pictures show a result: the one registry of figures, by the result's type."""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

from app.figures.anchors import anchors_figure, moves_figure
from app.figures.attention import variation_bars, variation_panels
from app.figures.behaviour import confusion_figure, position_figure, shift_figure
from app.figures.bos import ablation_bars, changed_positions, head_maps
from app.figures.dynamics import dynamics_figure, order_figure
from app.figures.first_token import first_token_figure
from app.figures.logit_lens import attribution_figure, lens_figure
from app.figures.mechanisms import claims_figure, places_figure
from app.figures.memory import memory_claims_figure, memory_parts_figure
from app.figures.mod_pca import pca_grid_figure, score_figure, score_map_figure
from app.figures.outcomes import outcomes_figure
from app.figures.over_seeds import over_seeds_figure
from app.figures.patching import patching_caption, patching_figure
from app.figures.studies import panel_figure
from probes.ablation.bos_ablation import BosAblation
from probes.ablation.mask_as_finder import MaskAsFinder
from probes.ablation.period_shift import PeriodShift
from probes.ablation.position_free import PositionFree
from probes.mechanism.anchors import Anchors
from probes.mechanism.memory_verdict import MemoryMechanisms
from probes.mechanism.start_distance import StartDistance
from probes.mechanism.transplants import MemoryParts
from probes.mechanism.verdict import Mechanisms
from probes.over_seeds import OverSeeds
from probes.over_training.dynamics import Dynamics
from probes.over_training.order import OrderOverRuns
from probes.patching.pairs import PairPatching
from probes.reading.attention_variation import AttentionVariation, VariationComparison
from probes.reading.behaviour import Behaviour
from probes.reading.first_token import FirstToken
from probes.reading.logit_lens import LogitLens
from probes.reading.mod_pca import ModPca
from probes.result import Result
from probes.studies.result import StudyResult

Figures = dict[str, go.Figure]  # by caption


def _behaviour(result: Behaviour) -> Figures:
    figures = {"Accuracy at each position": position_figure(result), "What is said instead": confusion_figure(result)}
    return figures if result.why_no_shift else figures | {"Accuracy over the row's shift": shift_figure(result)}


def _mod_pca(result: ModPca) -> Figures:
    return {
        "First two components at the clearest sites, coloured by position modulo m": pca_grid_figure(result),
        f"Cluster score of each modulus at {result.clearest.site.label}": score_figure(result, result.clearest.site),
        "Cluster score by site and modulus": score_map_figure(result),
    }


def _attention(result: AttentionVariation) -> Figures:
    return {
        f"Std of the scores over positions, layer {summary.layer}": variation_panels(result, summary.layer)
        for summary in result.layers
    }


def _bos(result: BosAblation) -> Figures:
    figures = {"Change in accuracy by edit": ablation_bars(result)}
    if any(effect.head is not None for effect in result.effects):
        figures["Change by head that is cut off"] = head_maps(result)
    return figures | {"Share of changed predictions at each position": changed_positions(result)}


def _period_shift(result: PeriodShift) -> Figures:
    """By code: a site has few interventions of each, all sites together are many."""
    return {
        f"Answers when the part that follows the {name} is moved": outcomes_figure(
            result, [one for one in result.outcomes if one.code == code]
        )
        for code, name in (("pid", "PID"), ("answer", "answer"))
    }


FIGURES: dict[type[Result], Callable[[Any], Figures]] = {
    Behaviour: _behaviour,
    FirstToken: lambda result: {
        "How well a linear probe reads it, and an untrained counter": first_token_figure(result)
    },
    ModPca: _mod_pca,
    AttentionVariation: _attention,
    VariationComparison: lambda result: {"Variation relative to the spread between pairs": variation_bars(result)},
    BosAblation: _bos,
    LogitLens: lambda result: {
        "Accuracy read at each layer": lens_figure(result),
        "What each part adds to the right answer": attribution_figure(result),
    },
    PairPatching: lambda result: {
        patching_caption(result, site): patching_figure(result, site) for site in result.grids
    },
    Mechanisms: lambda result: {
        "How often each claim of each algorithm comes out": claims_figure(result),
        "Where each variable was sought": places_figure(result),
    },
    Anchors: lambda result: {
        "How often each anchor predicts the answers to moved PIDs": anchors_figure(result),
        "Which tokens the answers follow": moves_figure(result),
    },
    PeriodShift: _period_shift,
    PositionFree: lambda result: {"Accuracy without positions in the scores": outcomes_figure(result)},
    MaskAsFinder: lambda result: {"Answers that turn round with the mask": outcomes_figure(result)},
    StartDistance: lambda result: {"Answers that each way to count predicts": outcomes_figure(result)},
    MemoryMechanisms: lambda result: {"How often each claim about the memory comes out": memory_claims_figure(result)},
    MemoryParts: lambda result: {"Answers that go on from the donor's count": memory_parts_figure(result)},
    StudyResult: lambda result: {panel.caption: panel_figure(panel) for panel in result.panels},
    Dynamics: lambda result: {"Over training": dynamics_figure(result)},
    OverSeeds: lambda result: {"Seed by seed": over_seeds_figure(result)},
    OrderOverRuns: lambda result: {"What rises before and after OOD accuracy, over runs": order_figure(result)},
}


def figures_of(result: Result) -> Figures:
    """The pictures of a result, by caption."""
    return FIGURES[type(result)](result)
