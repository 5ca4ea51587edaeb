"""The one registry of probes: the question of each, what the paper says about it, and how to run it on a counter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.checkpoint import load_counter
from models.counter import Counter
from models.find import RUNS, SHIPPED, find_checkpoint
from models.header import CheckpointInfo
from models.recurrent import Recurrent
from probes.ablation.bos_ablation import bos_ablation
from probes.ablation.mask_as_finder import mask_as_finder
from probes.ablation.period_shift import period_shift
from probes.ablation.position_free import position_free
from probes.mechanism.anchors import anchor_probe
from probes.mechanism.memory_verdict import memory_mechanisms
from probes.mechanism.start_distance import start_distance
from probes.mechanism.transplants import memory_parts
from probes.mechanism.verdict import mechanisms
from probes.over_training.dynamics import dynamics
from probes.over_training.order import order_of_seeds
from probes.patching.pairs import pair_patch
from probes.reading.attention_variation import attention_variation, compare_variation
from probes.reading.behaviour import behaviour
from probes.reading.first_token import first_token_probe
from probes.reading.logit_lens import logit_lens
from probes.reading.mod_pca import mod_pca
from probes.result import Result


@dataclass(frozen=True)
class Subject:
    """A counter to probe, with its name and checkpoint file."""

    name: str
    path: Path  # of its checkpoint file
    counter: Counter

    @property
    def info(self) -> CheckpointInfo:
        assert self.counter.info is not None
        return self.counter.info


def load_subject(checkpoint: str | Path) -> Subject:
    """The counter of this name or path, named by its path below the shipped counters or ./runs if it is there."""
    path = find_checkpoint(checkpoint)
    name = path.parent.as_posix() if path.name == "model.safetensors" else path.as_posix()
    for folder in (SHIPPED, RUNS.resolve()):
        if path.resolve().is_relative_to(folder):
            shown = path.resolve().relative_to(folder)
            name = (shown.parent if path.name == "model.safetensors" else shown).as_posix()
    return Subject(name, path, load_counter(path))


@dataclass(frozen=True)
class Probe:
    """An analysis of one counter, and what reports say about it."""

    title: str
    question: str  # what it asks
    paper: str  # what the paper says about it
    run: Callable[[Subject, int], Result]  # on a counter, with a seed; raises NotApplicable if it makes no sense
    # Compares several counters, from them and their results by name; raises NotApplicable if they cannot be compared.
    compare: Callable[[Mapping[str, Subject], Mapping[str, Any]], Result] | None = None


def _mechanism(subject: Subject, seed: int) -> Result:
    """The test of stated algorithms that fits the family: of attention, or of a recurrent memory."""
    test = memory_mechanisms if isinstance(subject.counter, Recurrent) else mechanisms
    return test(subject.counter, seed=seed)


PROBES: dict[str, Probe] = {
    "behaviour": Probe(
        "Behaviour",
        "Where does it count right, and where does it break?",
        "Every scheme fits some forms of counting; few go on past the lengths seen in training.",
        lambda subject, seed: behaviour(subject.counter, seed=seed),
    ),
    "first_token": Probe(
        "First token",
        "Can a linear probe read `I am the first token`, and by how much the row is shifted?",
        "Counting starts by recognising the first token; nope and rope cannot, when all tokens are equal.",
        lambda subject, seed: first_token_probe(subject.counter, seed=seed),
    ),
    "mod_pca": Probe(
        "PCA over positions",
        "Do states at positions that are equal modulo m lie together?",
        "In modular counters that extrapolate (ape, sine), states cluster by position modulo 10; in spe they do not.",
        lambda subject, seed: mod_pca(subject.counter, seed=seed),
    ),
    "attention": Probe(
        "Attention-score variation",
        "How much do attention scores of one pair of tokens vary with their positions?",
        "Selective counting needs attention that ignores position; rope's cannot.",
        lambda subject, seed: attention_variation(subject.counter, seed=seed),
        lambda subjects, results: compare_variation(results),
    ),
    "bos": Probe(
        "First-token ablation",
        "What breaks when nothing can read bos, or the first token if there is no bos?",
        "nope and rope need a bos token as an anchor to count from.",
        lambda subject, seed: bos_ablation(subject.counter, seed=seed),
    ),
    "logit_lens": Probe(
        "Logit lens and attribution",
        "From which layer on can the answer be read, and which heads and MLPs write it?",
        "The paper has no such analysis.",
        lambda subject, seed: logit_lens(subject.counter, seed=seed),
    ),
    "patching": Probe(
        "Activation patching",
        "Where is what tells two rows apart: which activation of the one, put into the other, moves the answers?",
        "The paper has no such analysis.",
        lambda subject, seed: pair_patch(subject.counter, seed=seed),
    ),
    "mechanism": Probe(
        "Mechanism, by intervention",
        "Which stated algorithm predicts what it answers when one variable of it is swapped between two rows?",
        "Modular counters subtract the first token's PID from their own, modulo 10; selective ones take (k/n) / (1/n).",
        _mechanism,
    ),
    "transplants": Probe(
        "Transplants of the memory",
        "Which part of what a recurrent counter remembers do later answers follow, when it comes from another row?",
        "The paper has no such analysis.",
        lambda subject, seed: memory_parts(subject.counter, seed=seed),
    ),
    "anchor": Probe(
        "Anchor, by moved position ids",
        "Which tokens tell it where the row begins, when the position ids of single tokens are moved?",
        "The first token alone: modular counters recognise it and subtract its position from their own.",
        lambda subject, seed: anchor_probe(subject.counter, seed=seed),
    ),
    "period_shift": Probe(
        "Clusters by position, shifted and removed",
        "Do answers follow when the part of the states that repeats with the position id is moved?",
        "In modular counters that extrapolate, states cluster by position modulo 10 and are subtracted.",
        lambda subject, seed: period_shift(subject.counter, seed=seed),
    ),
    "position_free": Probe(
        "Attention without positions",
        "Does a rotary counter do as well, or better, if its attention scores ignore positions?",
        "Selective counting needs attention by token alone, and rope's positions disturb it.",
        lambda subject, seed: position_free(subject.counter, seed=seed),
    ),
    "mask": Probe(
        "Causal mask, opened and closed",
        "Does the causal mask find the first token: do answers turn round when it is changed for one token?",
        "Among different tokens the causal mask is enough to recognise the first one.",
        lambda subject, seed: mask_as_finder(subject.counter, seed=seed),
    ),
    "start": Probe(
        "What is added to the start number",
        "Are position ids added to the start number, or tokens, and where does that number enter?",
        "The paper knows of no general solution, and doubts that rope has one.",
        lambda subject, seed: start_distance(subject.counter, seed=seed),
    ),
    "dynamics": Probe(
        "Learning dynamics",
        "What rises over training, and what of it before or after the ability to extrapolate?",
        "The paper has no such analysis.",
        lambda subject, seed: dynamics(subject.path, seed=seed),
        lambda subjects, results: order_of_seeds({name: subjects[name].info for name in results}, results),
    ),
}
