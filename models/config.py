"""Model configs: frozen dataclasses that rebuild a counter exactly. No torch here: the command line must be quick."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from models.border import check_fields
from models.errors import CountLensError, unknown
from models.ranges import (
    Dropout,
    Heads,
    HiddenWidth,
    Layers,
    LearningRate,
    Length,
    Period,
    StateSize,
    Std,
    VocabularySize,
    WeightDecay,
    Width,
)
from models.schemes import SCHEMES

LARGEST_TABLE = 2**24  # positions times columns; building it takes about 300 MB
# Fields that files leave out if they are None, so that files written before these fields existed stay the same, byte
# for byte.
OMITTED_IF_NONE = (
    *("periods", "embed_lr", "embed_decay", "position_decay", "state_lr", "state_decay", "input_std"),
    *("length_warmup", "algorithm"),
)


def omit_unset(values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config without those that files leave out."""
    return {name: value for name, value in values.items() if value is not None or name not in OMITTED_IF_NONE}


@dataclass(frozen=True)
class CounterConfig:
    """The fields that every family has."""

    d_vocab: VocabularySize  # tokens in the vocabulary
    max_position: Length = field(default=128, kw_only=True)  # position ids are 0..max_position-1
    n_layers: Layers = field(default=2, kw_only=True)  # blocks
    d_model: Width = field(default=64, kw_only=True)  # width of the residual stream

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def sizes_at(cls, d_model: int) -> dict[str, int]:
        """The sizes that follow from the width if the user leaves them open, by field name."""
        return {}

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        """The multiply-adds of one layer's forward pass over a batch (`training.sweep.flops` says what is counted)."""
        raise TypeError(f"{type(self).__name__} does not define layer_multiply_adds")

    def layer_launches(self, rows: int, n_pos: int) -> int:
        """The GPU kernels that one layer starts in a training step, counted as calls that PyTorch dispatches."""
        raise TypeError(f"{type(self).__name__} does not define layer_launches")

    # The names that TransformerLens' tools read from a `cfg`.
    @property
    def n_ctx(self) -> int:
        return self.max_position

    @property
    def device(self) -> None:
        """None, which is torch's default. A config does not say where a counter is: see `counter.device`."""
        return None


@dataclass(frozen=True)
class TransformerConfig(CounterConfig):
    """A pre-LN GPT-2 decoder with ReLU, as the paper trains it."""

    position: str = "nope"  # positional scheme, of SCHEMES
    n_heads: Heads = 4  # attention heads per block; each is d_model / n_heads wide
    d_mlp: HiddenWidth = 256  # width of the MLP's hidden layer
    causal: bool = True  # False lets every token attend to later ones too
    eps: Annotated[float, Meta(gt=0, le=1e12)] = 1e-5  # LayerNorm's epsilon
    init_std: Std = 0.02  # std of the initial weights
    embed_std: Std | None = None  # std of the initial token embedding; None: init_std
    periods: tuple[Period, ...] | None = None  # periods of the scheme's first waves, in positions; None: the usual ones
    # Which of HookedTransformer's optional hook points fire; see `Transformer.set_use_*`.
    use_attn_result: bool = False
    use_split_qkv_input: bool = False
    use_attn_in: bool = False
    use_hook_mlp_in: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.position not in SCHEMES:
            raise unknown("positional scheme", self.position, SCHEMES)
        if self.max_position * self.d_model > LARGEST_TABLE:
            raise CountLensError(
                f"max_position={self.max_position} and d_model={self.d_model} make a table of more than "
                f"{LARGEST_TABLE:,} entries: lower one of them"
            )
        if self.d_model % self.n_heads:
            raise CountLensError(
                f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}: "
                f"choose n_heads from {[n for n in range(1, 17) if self.d_model % n == 0]}"
            )
        scheme = SCHEMES[self.position]
        if scheme.rotary and self.d_head % 2:
            raise CountLensError(
                f"{self.position} rotates pairs of a head's columns, but d_model={self.d_model} / "
                f"n_heads={self.n_heads} gives an odd d_head={self.d_head}: choose another n_heads"
            )
        if self.periods is not None:
            self._check_periods(self.periods)
        if scheme.pairs_columns and self.d_model % 2:
            raise CountLensError(
                f"{self.position} pairs columns, but d_model={self.d_model} is odd: choose an even d_model"
            )

    def _check_periods(self, periods: tuple[float, ...]) -> None:
        columns = SCHEMES[self.position].waves_over
        if columns is None:
            names = ", ".join(name for name, scheme in SCHEMES.items() if scheme.waves_over is not None)
            raise CountLensError(f"{self.position} has no waves, so that periods cannot be set: use {names}, or none")
        pairs = getattr(self, columns) // 2
        if not 1 <= len(periods) <= pairs:
            raise CountLensError(
                f"periods={periods}: {self.position} has {pairs} waves ({columns}={2 * pairs}), so that 1 to {pairs} "
                "of them can be given"
            )

    @classmethod
    def sizes_at(cls, d_model: int) -> dict[str, int]:
        return {"d_mlp": 4 * d_model}

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        projections, mlp = 4 * self.d_model**2, 2 * self.d_model * self.d_mlp
        attention = 2 * n_pos * self.d_model  # scores, and the weighted sum of values
        return rows * n_pos * (projections + attention + mlp)

    def layer_launches(self, rows: int, n_pos: int) -> int:
        return 45

    # The names that TransformerLens' tools read from a `cfg`.
    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    @property
    def act_fn(self) -> str:
        return "relu"

    @property
    def normalization_type(self) -> str:
        return "LN"

    @property
    def attn_only(self) -> bool:
        return False

    @property
    def n_key_value_heads(self) -> None:
        return None


@dataclass(frozen=True)
class RecurrentConfig(CounterConfig):
    """The fields that the recurrent families share. They have no positions: position ids are accepted and ignored."""

    embed_std: Std = 0.02  # std of the initial embedding; 1 helps where tokens must be told apart
    dropout: Dropout = 0.0  # while training; each family says where

    @property
    def causal(self) -> bool:
        return True

    @property
    def normalization_type(self) -> str | None:
        """TransformerLens' name for the norm before the head; None if there is no such norm."""
        return None


@dataclass(frozen=True)
class StackConfig(RecurrentConfig):
    """A plain stack of recurrent layers: no norm, no residual stream. Dropout is torch's own, between layers."""

    input_std: Std | None = None  # std of the initial input weights of each layer; None: all weights as torch has them

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dropout > 0 and self.n_layers == 1:
            raise CountLensError(
                f"dropout={self.dropout} would do nothing: it acts between layers, and n_layers=1. "
                "Use dropout=0 or at least 2 layers"
            )

    def layer_launches(self, rows: int, n_pos: int) -> int:
        """In cuDNN a layer is one call, with about two kernels per position and direction."""
        return 15 + 4 * n_pos


@dataclass(frozen=True)
class RNNConfig(StackConfig):
    """A plain Elman RNN (tanh) stack."""

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        return rows * n_pos * 2 * self.d_model**2


@dataclass(frozen=True)
class LSTMConfig(StackConfig):
    """A plain LSTM stack."""

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        return rows * n_pos * 8 * self.d_model**2  # four gates


@dataclass(frozen=True)
class S4Config(RecurrentConfig):
    """S4-LegS with the full diagonal-plus-low-rank state matrix, pre-LN blocks with GELU and GLU."""

    d_state: StateSize = 64  # size of the state of each channel; half as many conjugate pairs are kept
    dt_min: Annotated[float, Meta(gt=0, le=100)] = 1e-3  # smallest initial step
    dt_max: Annotated[float, Meta(gt=0, le=100)] = 0.1  # largest initial step
    kernel_length: Length = 128  # the stored C belongs to a kernel of this length
    state_lr: LearningRate | None = None  # largest learning rate of A, B, C and dt; None: 1e-3, as S4's authors have it
    state_decay: WeightDecay | None = None  # weight decay of A, B, C and dt; None: 0, as S4's authors have it

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_state % 2:
            raise CountLensError(f"d_state={self.d_state}: must be even, for conjugate pairs")
        if self.dt_min > self.dt_max:
            raise CountLensError(f"dt_min={self.dt_min}, dt_max={self.dt_max}: dt_min must not be above dt_max")

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        n = 2 * n_pos
        convolution = round(5 * n * math.log2(n) + 3 * n) // 2  # two Fourier transforms and the product between them
        # Each pair has a table made of 3 coefficients, from which 8 sums are taken; real and imaginary parts.
        kernel = 11 * (self.d_state // 2) * (self.kernel_length + 2)
        return self.d_model * (rows * convolution + kernel) + rows * n_pos * 2 * self.d_model**2

    def layer_launches(self, rows: int, n_pos: int) -> int:
        return 190


@dataclass(frozen=True)
class MambaConfig(RecurrentConfig):
    """Mamba (S6): pre-RMSNorm blocks, selective state space, head tied to the embedding."""

    d_state: StateSize = 16  # size of the state of each inner channel
    d_conv: Annotated[int, Meta(ge=1, le=1024)] = 4  # width of the causal convolution
    expand: Annotated[int, Meta(ge=1, le=64)] = 2  # inner channels per column of the residual stream

    scan_elements: ClassVar[int] = 2**18  # numbers in the states computed at once: 1 MB, to fit a core's cache

    @property
    def d_inner(self) -> int:
        return self.expand * self.d_model

    @property
    def dt_rank(self) -> int:
        return -(-self.d_model // 16)

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        projections = 3 * self.d_model + (self.dt_rank + 2 * self.d_state) + self.dt_rank  # in and out, x_proj, dt_proj
        state = 4 * self.d_state  # decay, write, update, readout
        return rows * n_pos * self.d_inner * (projections + self.d_conv + state)

    def layer_launches(self, rows: int, n_pos: int) -> int:
        """The scan starts two kernels for every position, and more for every group of positions."""
        at_once = max(1, self.scan_elements // (rows * self.d_inner * self.d_state))
        return 120 + 2 * n_pos + 20 * -(-n_pos // at_once)

    @property
    def normalization_type(self) -> str:
        return "RMS"


@dataclass(frozen=True)
class RWKV6Config(RecurrentConfig):
    """RWKV-6 (Finch): time mix with data-dependent decay and token shift, then channel mix.

    The embedding is uniform and then normalised: `embed_std` scales its bound, see `RWKV6.init_weights`.
    """

    d_head: Width = 64  # width of a head, of which d_model is a multiple; a head's state is d_head x d_head
    shift_rank: Width = 32  # rank of the token shift
    decay_rank: Width = 64  # rank of the decay

    chunk: ClassVar[int] = 16  # positions that the parallel form computes at once; a power of two

    def __post_init__(self) -> None:
        super().__post_init__()
        # A norm subtracts the mean of each head, so a head of one column would always be 0.
        if self.d_head < 2 or self.d_model % self.d_head:
            widths = [width for width in range(2, self.d_model + 1) if self.d_model % width == 0]
            raise CountLensError(
                f"d_head={self.d_head} does not split d_model={self.d_model} into heads of two columns or more: "
                f"choose d_head from {widths}"
            )

    @classmethod
    def sizes_at(cls, d_model: int) -> dict[str, int]:
        return {"d_head": math.gcd(64, d_model)}

    @property
    def n_heads(self) -> int:
        return self.d_model // self.d_head

    @property
    def d_ffn(self) -> int:
        return int(3.5 * self.d_model) // 32 * 32 or 32

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        time_mix = 5 * self.d_model**2 + self.d_model * (10 * self.shift_rank + 2 * self.decay_rank)
        channel_mix = self.d_model**2 + 2 * self.d_model * self.d_ffn
        in_chunks = -(-n_pos // self.chunk) * self.chunk
        # In a chunk: running decays, pairs of steps by halves, weighted sums; between chunks: the state, twice.
        halves = self.chunk.bit_length() - 2  # halves of 2, 4, ... positions
        recurrence = self.d_model * (self.chunk * ((2 + halves) + (1 + halves) + 1) + 2 * self.d_head)
        return rows * (n_pos * (time_mix + channel_mix) + in_chunks * recurrence)

    def layer_launches(self, rows: int, n_pos: int) -> int:
        return 260 + 6 * -(-n_pos // self.chunk)

    @property
    def normalization_type(self) -> str:
        return "LN"
