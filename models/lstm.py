"""The plain LSTM, stacked (paper, appendix A).

    i, f, o = sigmoid(W x_t + U h_{t-1} + b),  g = tanh(...),  c_t = f c_{t-1} + i g,  h_t = o tanh(c_t)

The state is h and c, stacked: [..., 0, :] is the hidden state h and [..., 1, :] the cell state c. There is no
residual stream: a layer's `hook_resid_pre` is its input and its `hook_resid_post` its hidden states. The gates, after
their nonlinearities, are at `hook_gate_i`, `_f`, `_g` and `_o`, each called once with the whole trajectory.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.config import StackConfig
from models.counter import listening
from models.recurrent import Recurrent, RecurrentBlock
from models.rnn import CellMixer, StackedBlock
from models.shapes import Stream

State = Float[Tensor, "batch 2 d_model"]


class LSTMMixer(CellMixer):
    """An LSTM layer: its state is the hidden and the cell state, its output the hidden state."""

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(nn.LSTM(cfg.d_model, cfg.d_model, batch_first=True), cfg.input_std)
        self.hook_gate_i = HookPoint()
        self.hook_gate_f = HookPoint()
        self.hook_gate_g = HookPoint()
        self.hook_gate_o = HookPoint()

    def initial_state(self, x: Stream) -> State:
        return x.new_zeros(len(x), 2, x.shape[-1])

    def transition(self, state: State, *inputs: Tensor) -> State:
        return _next_state(state[:, 1], *self._gates(state[:, 0], inputs[0]))

    def _gates(
        self, hidden: Float[Tensor, "*batch d_model"], from_input: Float[Tensor, "*batch four_d_model"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        _, weight_hh, _, bias_hh = self.cell.all_weights[0]
        i, f, g, o = (from_input + F.linear(hidden, weight_hh, bias_hh)).chunk(4, dim=-1)
        return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()

    def apply_gate_hooks(self, states: Float[Tensor, "batch pos 2 d_model"], *inputs: Tensor) -> Tensor:
        """The states with the effect of edited gates at their own positions; unchanged if no gate is edited."""
        points = (self.hook_gate_i, self.hook_gate_f, self.hook_gate_g, self.hook_gate_o)
        if not listening(*points):
            return states
        before = F.pad(states, (0, 0, 0, 0, 1, 0))[:, :-1]
        gates = self._gates(before[:, :, 0], inputs[0])
        edited = [point(gate) for point, gate in zip(points, gates, strict=True)]
        return states + (_next_state(before[:, :, 1], *edited) - _next_state(before[:, :, 1], *gates))

    def readout(self, states: Float[Tensor, "batch pos 2 d_model"], *inputs: Tensor) -> Stream:
        return states[:, :, 0]


def _next_state(cell: Tensor, i: Tensor, f: Tensor, g: Tensor, o: Tensor) -> Tensor:
    """The next hidden and cell state, stacked before the last axis."""
    cell = f * cell + i * g
    return torch.stack([o * torch.tanh(cell), cell], -2)


class LSTM(Recurrent):
    """A stack of LSTM layers."""

    cfg: StackConfig

    def build_block(self, layer: int) -> RecurrentBlock:
        return StackedBlock(LSTMMixer(self.cfg), self.cfg, layer)
