"""The gated recurrent unit, stacked, as `torch.nn.GRU` has it:

r, z = sigmoid(W x_t + b + U h_{t-1} + c),  n = tanh(W x_t + b + r (U h_{t-1} + c)),  h_t = (1 - z) n + z h_{t-1}
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from models.config import RecurrentConfig, StackConfig
from models.recurrent import Recurrent, RecurrentBlock
from models.rnn import CellMixer, StackedBlock
from models.shapes import Stream

State = Float[Tensor, "batch d_model"]


@dataclass(frozen=True)
class GRUConfig(StackConfig):
    """A stack of gated recurrent units."""

    def layer_multiply_adds(self, rows: int, n_pos: int) -> int:
        return rows * n_pos * 6 * self.d_model**2  # two gates and the candidate, each from input and state


class GRUMixer(CellMixer):
    """The state is the hidden state, which is also the output."""

    def __init__(self, cfg: RecurrentConfig) -> None:
        super().__init__(nn.GRU(cfg.d_model, cfg.d_model, batch_first=True))

    def initial_state(self, x: Stream) -> State:
        return torch.zeros_like(x[:, 0])

    def transition(self, state: State, *inputs: Tensor) -> State:
        _, weight_hh, _, bias_hh = self.cell.all_weights[0]
        r_x, z_x, n_x = inputs[0].chunk(3, dim=-1)
        r_h, z_h, n_h = F.linear(state, weight_hh, bias_hh).chunk(3, dim=-1)
        z = (z_x + z_h).sigmoid()
        candidate = torch.tanh(n_x + (r_x + r_h).sigmoid() * n_h)
        return (1 - z) * candidate + z * state

    def readout(self, states: Float[Tensor, "batch pos d_model"], *inputs: Tensor) -> Stream:
        return states


class GRU(Recurrent):
    """A stack of gated recurrent units."""

    def build_block(self, layer: int) -> RecurrentBlock:
        return StackedBlock(GRUMixer(self.cfg), self.cfg, layer)
