"""The options of commands that have many. The command line is generated from them, and their comments are its help.

No torch here: `--help` must be quick.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from tyro.conf import arg

from models.ranges import Length, RowCount, Seed
from training.config import EngineOptions

Index = Annotated[int, Meta(ge=0, le=10**6)]  # of a layer, a position, a line
Price = Annotated[float, Meta(ge=0, le=10**6)]


@dataclass(frozen=True)
class SweepOptions:
    """What `countlens sweep` does with its runs."""

    out: Path = Path("runs")  # where manifest and runs go
    only: str | None = None  # train only runs whose name fits, as 'mod10/*'
    skip_scored: Path | None = None  # leave out runs whose scores, with the same recipe, are in this table
    status: bool = False  # print how far every run is; train nothing
    dry_run: bool = False  # print FLOPs, time (minutes of timing for a large grid) and cost; train nothing
    gpu: str = "a100"  # with --dry-run: which GPU to estimate for
    price_per_core_hour: Price | None = None  # with --dry-run: what an hour of a core costs here
    index: Index | None = None  # train this one line of the manifest, here, and nothing else
    quiet: bool = False  # no live table
    engine: Literal["local", "ray"] = "local"  # local is this machine; ray a cluster (pip install 'countlens[ray]')
    engine_options: Annotated[EngineOptions, arg(name="")] = field(default_factory=EngineOptions)


@dataclass(frozen=True)
class StudyOptions:
    """How `countlens study` carries a study out."""

    out: Path = Path("runs/studies")  # where studies go, each into a folder of its name
    quick: bool = False  # only the runs of the headline, with fewer seeds: minutes instead of hours
    dry_run: bool = False  # print the protocol and what the runs that are left would cost; train nothing
    quiet: bool = False  # no live table
    engine: Literal["local", "ray"] = "local"  # local is this machine; ray a cluster (pip install 'countlens[ray]')
    engine_options: Annotated[EngineOptions, arg(name="")] = field(default_factory=EngineOptions)


@dataclass(frozen=True)
class PatchOptions:
    """What `countlens patch` patches. What is left out is chosen to fit the counter."""

    pair: str | None = None  # which pair of rows: shift, start, swap or bos_replaced
    # Kinds of activations, as resid_pre, mlp_out, z, state_step, with commas or blanks between: by layer and position
    # (and head). With head_ before it, as head_z: by layer and head, at all positions at once.
    sites: tuple[str, ...] = ()
    metric: str | None = None  # logit_diff, probability, accuracy or kl
    # denoise patches the corrupted run with the clean one's, noise the clean with the corrupted one's
    direction: Literal["denoise", "noise"] | None = None
    layer: tuple[Index, ...] = ()  # only these layers
    pos: tuple[Index, ...] = ()  # only these positions
    length: Length | None = None  # tokens counted in a row (as trained)
    batch: RowCount = 16  # pairs of rows
    seed: Seed = 0  # of everything that is drawn at random
