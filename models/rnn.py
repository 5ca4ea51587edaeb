"""The plain Elman RNN: h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh), stacked (paper, appendix A).

There is no residual stream: a layer's `hook_resid_pre` is its input and its `hook_resid_post` its hidden states.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from models.config import RecurrentConfig, StackConfig
from models.counter import normal_, uniform_
from models.recurrent import AnyStream, Inputs, Mixer, Recurrent, RecurrentBlock
from models.shapes import Stream

State = Float[Tensor, "batch d_model"]


class CellMixer(Mixer):
    """A mixer around one of torch's recurrent layers, which holds the weights and is also the parallel form."""

    def __init__(self, cell: nn.RNNBase, input_std: float | None = None) -> None:
        super().__init__()
        self.cell = cell
        self.input_std = input_std

    def init_weights(self, generator: torch.Generator) -> None:
        """Draws all weights uniformly from +-1/sqrt(d_model), as torch does, but from the generator.

        If `input_std` is given, the input weights come from N(0, input_std): with torch's small ones a signal fades on
        its way through several layers.
        """
        for parameter in self.cell.parameters():
            uniform_(parameter, self.cell.hidden_size**-0.5, generator)
        if self.input_std is not None:
            weight_ih, *_ = self.cell.all_weights[0]
            normal_(weight_ih, self.input_std, generator)

    def run_parallel(self, x: Stream) -> Stream:
        return self.cell(x)[0]

    def inputs(self, x: Stream) -> Inputs:
        weight_ih, _, bias_ih, _ = self.cell.all_weights[0]
        return (F.linear(x, weight_ih, bias_ih),)


class ElmanMixer(CellMixer):
    """A plain RNN layer: its state is the hidden state, which is also its output."""

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(nn.RNN(cfg.d_model, cfg.d_model, batch_first=True), cfg.input_std)

    def initial_state(self, x: Stream) -> State:
        return torch.zeros_like(x[:, 0])

    def transition(self, state: State, *inputs: Tensor) -> State:
        _, weight_hh, _, bias_hh = self.cell.all_weights[0]
        return torch.tanh(inputs[0] + F.linear(state, weight_hh, bias_hh))

    def readout(self, states: Float[Tensor, "batch pos d_model"], *inputs: Tensor) -> Stream:
        return states


class StackedBlock(RecurrentBlock):
    """One layer of a stack. All layers but the first have dropout on their input, as torch has it between layers."""

    def __init__(self, mixer: Mixer, cfg: RecurrentConfig, layer: int) -> None:
        super().__init__(mixer)
        self.dropout = cfg.dropout if layer > 0 else 0.0

    def run(self, resid: AnyStream, mixer: Callable[[AnyStream], AnyStream]) -> AnyStream:
        return mixer(F.dropout(resid, self.dropout, self.training))


class RNN(Recurrent):
    """A stack of Elman layers."""

    cfg: StackConfig

    def build_block(self, layer: int) -> RecurrentBlock:
        return StackedBlock(ElmanMixer(self.cfg), self.cfg, layer)
