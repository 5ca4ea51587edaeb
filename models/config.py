"""What a counter is, as data: frozen configs that rebuild it exactly. No torch here, so that the
command line can read them at once."""

from dataclasses import dataclass
from typing import Literal, get_args

from models.errors import CountLensError, unknown

PositionName = Literal["nope", "sine", "ape", "rope", "spe"]
POSITION_NAMES: tuple[str, ...] = get_args(PositionName)


@dataclass(frozen=True)
class TransformerConfig:
    """A pre-LN GPT-2 decoder with ReLU, as the paper trains it."""

    d_vocab: int  # tokens in the vocabulary
    position: str = "nope"  # positional scheme: nope, sine, ape, rope or spe
    max_position: int = 128  # position ids are 0..max_position-1
    n_layers: int = 2  # blocks
    d_model: int = 64  # width of the residual stream
    n_heads: int = 4  # attention heads a block; each is d_model / n_heads wide
    d_mlp: int = 256  # width of the MLP's hidden layer
    causal: bool = True  # False lets every token attend to later ones too
    eps: float = 1e-5  # LayerNorm's epsilon
    init_std: float = 0.02  # std of the initial weights
    # Which of HookedTransformer's optional hook points fire; see `Transformer.set_use_*`.
    use_attn_result: bool = False
    use_split_qkv_input: bool = False
    use_attn_in: bool = False
    use_hook_mlp_in: bool = False

    def __post_init__(self) -> None:
        if self.position not in POSITION_NAMES:
            raise unknown("positional scheme", self.position, POSITION_NAMES)
        for name in ("d_vocab", "max_position", "n_layers", "d_model", "n_heads", "d_mlp"):
            if getattr(self, name) < 1:
                raise CountLensError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.d_model % self.n_heads:
            raise CountLensError(
                f"d_model={self.d_model} is not divisible by n_heads={self.n_heads}: "
                f"choose n_heads from {[n for n in range(1, 17) if self.d_model % n == 0]}"
            )
        if self.position == "rope" and self.d_head % 2:
            raise CountLensError(
                f"rope rotates pairs of a head's columns, but d_model={self.d_model} / n_heads={self.n_heads} "
                f"gives an odd d_head={self.d_head}: choose another n_heads"
            )
        if self.position == "sine" and self.d_model % 2:
            raise CountLensError(f"sine pairs columns, but d_model={self.d_model} is odd: choose an even d_model")

    # The names that TransformerLens' tools read from a `cfg`.
    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    @property
    def n_ctx(self) -> int:
        return self.max_position

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
