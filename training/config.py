"""The settings of a training run, as frozen dataclasses.

`TrainConfig` is what a user gives; the command line is generated from it. A field that is None is left open and takes
the preset's value. `training.presets.resolve` turns it into a `RunConfig`, with which a run is carried out: there
nothing that a run needs is None. No torch here: `--help` must be quick.
"""

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta
from typing_extensions import Doc

from models.border import IN_FILE, build
from models.config import omit_unset
from models.errors import CountLensError
from models.families import FAMILIES, TRANSFORMER
from models.ranges import (
    Dropout,
    Heads,
    HiddenWidth,
    Layers,
    LearningRate,
    Length,
    Period,
    RowCount,
    Seed,
    StateSize,
    Std,
    Step,
    Steps,
    WeightDecay,
    Width,
)
from models.schemes import SCHEMES

C = TypeVar("C", bound="TrainConfig")
DEFAULT_POSITION = "ape"
FAMILY_HELP = ", ".join(FAMILIES)
POSITION_HELP = f"positional scheme of a transformer: {', '.join(SCHEMES)} ({DEFAULT_POSITION})"
MAX_RUNS = 5_000  # largest number of runs in a sweep: all of them are checked before the first one starts
Snapshots = Annotated[int, Meta(ge=0, le=1000)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
Beta = Annotated[float, Meta(gt=0, lt=1)]
GradientNorm = Annotated[float, Meta(ge=0, le=10**6)]
Amount = Annotated[float, Meta(ge=0, le=10**6)]
Schedule = Literal["cosine", "constant"]
Algorithm = Literal["adamw", "soap"]


@dataclass(frozen=True)
class TaskOptions:
    """The task and its rows."""

    task: str = "mod10"  # which form of counting; `countlens tasks` lists them
    bos: bool = False  # begin each row with a special first token
    train_length: Length | None = None  # counted tokens of a training row (the task's own: 50, or 64)
    ood_length: Length | None = None  # how far extrapolation goes (the task's own: 100, or 128)
    max_position: Length | None = None  # position ids are below this (next power of two above the longest row)
    policy: str = "shifted"  # position ids of a row: contiguous, shifted or randomised


@dataclass(frozen=True)
class ModelOptions:
    """The model. None: the preset's value for this task and architecture."""

    family: Annotated[str, Doc(FAMILY_HELP)] = TRANSFORMER
    position: Annotated[str | None, Doc(POSITION_HELP)] = None
    n_layers: Layers | None = None  # blocks
    d_model: Width | None = None  # width
    n_heads: Heads | None = None  # attention heads
    d_mlp: HiddenWidth | None = None  # width of the MLP's hidden layer (4 * d_model)
    causal: bool = True  # tokens of a transformer see only earlier ones
    init_std: Std | None = None  # std of a transformer's initial weights
    d_state: StateSize | None = None  # state of each channel of s4 (64) or mamba (16)
    state_lr: LearningRate | None = None  # largest learning rate of s4's A, B, C and dt (1e-3)
    state_decay: WeightDecay | None = None  # weight decay of s4's A, B, C and dt (0)
    d_head: Width | None = None  # width of rwkv6's heads (64, or what divides the width)
    embed_std: Std | None = None  # std of the initial token embedding (of a transformer: init_std)
    input_std: Std | None = None  # std of the initial input weights of each layer of an rnn or lstm (torch's)
    dropout: Dropout | None = None  # of a recurrent counter, while training
    periods: tuple[Period, ...] | None = None  # of rope's or sine's first waves, as 10 20 (the usual ones)


@dataclass(frozen=True)
class OptimiserOptions:
    """The optimiser: linear warm-up and clipped gradients. None: the preset's value."""

    steps: Steps | None = None  # training steps
    batch_size: RowCount | None = None  # rows per step
    lr: LearningRate | None = None  # peak learning rate
    embed_lr: LearningRate | None = None  # of the token embedding, as a multiple of the others' (1)
    warmup_steps: Step | None = None  # steps of linear warm-up
    length_warmup: Step | None = None  # first steps, in which rows are cut and grow to their whole length (0)
    schedule: Schedule | None = None  # after the warm-up: cosine to 0, or constant
    algorithm: Algorithm | None = None  # adamw, or soap: Adam in the eigenbases of gradients, faster for rnn and lstm
    weight_decay: WeightDecay | None = None  # decoupled
    embed_decay: WeightDecay | None = None  # of the token embedding (as of all weights)
    position_decay: WeightDecay | None = None  # of learned positions (as of all weights)
    beta2: Beta | None = None  # second-moment decay
    clip: GradientNorm | None = None  # largest gradient norm (0: any)


@dataclass(frozen=True)
class RecordOptions:
    """What a run records while it trains. None: the preset's value."""

    eval_every: Steps | None = None  # steps between evaluations; each also saves the state for --resume
    eval_rows: RowCount | None = None  # rows of each split per evaluation
    snapshots: Snapshots = 0  # checkpoints kept over training, at log-spaced steps, for learning dynamics
    tensorboard: bool = False  # also write TensorBoard events (needs the tensorboard extra)


@dataclass(frozen=True)
class DeviceOptions:
    """The hardware that a run uses."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # auto takes an accelerator if there is one
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # of autocast in training (CUDA); fp16 also scales the loss
    bf16: bool = False  # short for --precision bf16
    compile: bool = False  # torch.compile the training step (CUDA)
    threads: Threads = 1  # CPU threads; small models are fastest with one, several runs side by side

    @property
    def autocast(self) -> Literal["fp32", "bf16", "fp16"]:
        """The precision of training: bf16 if that flag is set, else `precision`."""
        return "bf16" if self.bf16 else self.precision


@dataclass(frozen=True)
class EngineOptions:
    """How a sweep distributes its runs."""

    workers: Annotated[int, Meta(ge=1, le=1024)] | None = None  # runs at a time (one per GPU or per core)
    retries: Annotated[int, Meta(ge=0, le=1000)] = 3  # how often a run is started again after its worker or node died
    address: str | None = None  # Ray cluster to join, such as auto or ray://host:10001; without it one is started here
    cpus: Amount = 1.0  # Ray: cores per run
    gpus: Amount = 0.0  # Ray: GPUs per run; 0.25 puts four runs on one


@dataclass(frozen=True)
class TrainConfig:
    """One training run, as a user describes it."""

    preset: str = "small"  # `small` trains in CPU minutes, `paper` is the paper's size, for a GPU
    seed: Seed = 0  # of weights and data
    data: TaskOptions = field(default_factory=TaskOptions)
    model: ModelOptions = field(default_factory=ModelOptions)
    optimiser: OptimiserOptions = field(default_factory=OptimiserOptions)
    record: RecordOptions = field(default_factory=RecordOptions)
    hardware: DeviceOptions = field(default_factory=DeviceOptions)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        values = asdict(self)
        return values | {group: omit_unset(values[group]) for group in ("model", "optimiser")}

    @classmethod
    def from_dict(cls: type[C], values: object, style: str = IN_FILE) -> C:
        """The inverse of `to_dict`, with every type and range checked."""
        try:
            return build(cls, values, "a training config", style)
        except CountLensError as error:
            raise CountLensError(f"this is not a training config of this version: {error}") from error


# The same groups after resolution. `field()` removes the default None of a field.


@dataclass(frozen=True, kw_only=True)
class TaskSettings(TaskOptions):
    """The task and its rows, with all lengths known."""

    train_length: Length = field()
    ood_length: Length = field()
    max_position: Length = field()


@dataclass(frozen=True, kw_only=True)
class ModelSettings(ModelOptions):
    """The model. None: the family has no such setting, or has a default of its own (for embed_std: init_std)."""

    n_layers: Layers = field()
    d_model: Width = field()

    @property
    def has_dropout(self) -> bool:
        return self.dropout is not None and self.dropout > 0


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings(OptimiserOptions):
    """The optimiser, with every value known."""

    steps: Steps = field()
    batch_size: RowCount = field()
    lr: LearningRate = field()
    warmup_steps: Step = field()
    schedule: Schedule = field()
    weight_decay: WeightDecay = field()
    beta2: Beta = field()
    clip: GradientNorm = field()


@dataclass(frozen=True, kw_only=True)
class RecordSettings(RecordOptions):
    """What a run records while it trains, with every value known."""

    eval_every: Steps = field()
    eval_rows: RowCount = field()


@dataclass(frozen=True, kw_only=True)
class RunConfig(TrainConfig):
    """One training run with every setting that it needs."""

    data: TaskSettings
    model: ModelSettings
    optimiser: OptimiserSettings
    record: RecordSettings

    @property
    def recipe(self) -> str:
        """A digest of everything that determines the weights, except the seed. The seeds of a cell share it."""
        values = self.to_dict()
        settings = {name: values[name] for name in ("preset", "data", "model", "optimiser")}
        return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def architecture_name(model: ModelOptions) -> str:
    """The model's name in the paper's tables: the positional scheme of a transformer, else the family."""
    return (model.position or DEFAULT_POSITION) if model.family == TRANSFORMER else model.family
