"""What the recurrent families share: blocks around a mixer whose state can be read, edited and carried on.

A *mixer* moves information along positions. Its `state` after a position is what later positions know of earlier
ones. Mamba and RWKV-6 also look a few inputs back: that window is in the *carry* of a stream, not in the state. A
block's `memory` names every part of a carry that comes from the row, so that it can be read, edited and put back.
If no hook is set in a mixer, it computes the whole row at once, in its fastest form. If one is, it computes inputs,
then states position by position, then outputs. Both give the same numbers.

`hook_state` is called once, with the whole trajectory after it was computed, so an edit changes what is read out at
that position and nothing later. `hook_state_step` is called after each position, with `hook.ctx["pos"]` set, and an
edit goes on into every later state.
"""

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint

from models.config import RecurrentConfig
from models.counter import Counter, listening, normal_
from models.shapes import Logits, PositionIds, Stream, TokenIds

StreamStep = Float[Tensor, "batch d_model"]
AnyStream = Float[Tensor, "*batch d_model"]  # whole rows or one position of them
Inputs = tuple[Tensor, ...]  # what the transition and the readout need at each position, [batch, pos, ...] each
Carry = tuple[Tensor, ...]  # what one step of a stream passes to the next
Memory = dict[str, Tensor]  # the parts of a carry that come from the row, by name, [batch, ...] each


class Mixer(nn.Module):
    """A recurrence over positions. Each family defines its inputs, transition and readout."""

    def __init__(self) -> None:
        super().__init__()
        self.hook_state = HookPoint()
        self.hook_state_step = HookPoint()

    def forward(self, x: Stream) -> Stream:
        points = [module for module in self.modules() if isinstance(module, HookPoint)]
        return self.run_with_states(x) if listening(*points) else self.run_parallel(x)

    def run_parallel(self, x: Stream) -> Stream:
        """The output at every position, by the fastest method; no hook fires."""
        raise TypeError(f"{type(self).__name__} does not define run_parallel")

    def inputs(self, x: Stream) -> Inputs:
        """The part of the computation that does not depend on the state, for all positions at once."""
        raise TypeError(f"{type(self).__name__} does not define inputs")

    def constants(self) -> Inputs:
        """What the transition and the readout need and the weights alone determine, such as a discretisation.

        They are computed once per forward pass or stream, and passed to both methods after the inputs.
        """
        return ()

    def initial_state(self, x: Stream) -> Tensor:
        """The state before the first position, [batch, ...]."""
        raise TypeError(f"{type(self).__name__} does not define initial_state")

    def transition(self, state: Tensor, *inputs: Tensor) -> Tensor:
        """The state after a position, from the state before it and the inputs at this position."""
        raise TypeError(f"{type(self).__name__} does not define transition")

    def readout(self, states: Tensor, *inputs: Tensor) -> Stream:
        """The outputs at all positions, from the state after each and the inputs at each."""
        raise TypeError(f"{type(self).__name__} does not define readout")

    def apply_gate_hooks(self, states: Tensor, *inputs: Tensor) -> Tensor:
        """The states after hooks on gates, in a family that has such hooks; an edit changes its own position only."""
        return states

    def run_with_states(self, x: Stream) -> Stream:
        """The same output as `run_parallel`, computed state by state so that every hook fires."""
        inputs, constants = self.inputs(x), self.constants()
        state, states = self.initial_state(x), []
        for pos, at_pos in enumerate(zip(*(tensor.unbind(1) for tensor in inputs), strict=True)):
            self.hook_state_step.ctx["pos"] = pos
            state = self.hook_state_step(self.transition(state, *at_pos, *constants))
            states.append(state)
        trajectory = self.hook_state(self.apply_gate_hooks(torch.stack(states, 1), *inputs))
        return self.readout(trajectory, *inputs, *constants)

    def transition_matrices(self) -> Float[Tensor, "channel size size"] | None:
        """What a position does to the state before it, where that is one linear map whatever the input; else None.

        The state of a row, flattened, is one such vector after the other.
        """
        return None

    def init_weights(self, generator: torch.Generator) -> None:
        """Sets the mixer's parameters from the generator."""
        raise TypeError(f"{type(self).__name__} does not define init_weights")

    def initial_carry(self, x: StreamStep) -> Carry:
        """The carry with which a stream starts."""
        return (self.initial_state(x[:, None]), *self.constants())

    def step(self, x: StreamStep, carry: Carry) -> tuple[StreamStep, Carry]:
        """One position of a stream: its output, and the carry for the next one. No hook fires."""
        inputs, constants = self.inputs(x[:, None]), carry[1:]
        state = self.transition(carry[0], *(tensor[:, 0] for tensor in inputs), *constants)
        return self.readout(state[:, None], *inputs, *constants)[:, 0], (state, *constants)

    def memory(self, carry: Carry) -> Memory:
        """All that later positions can know of earlier ones; a mixer that carries more than a state overrides both."""
        return {"state": carry[0]}

    def with_memory(self, carry: Carry, memory: Memory) -> Carry:
        """The same carry with another memory."""
        return (memory["state"], *carry[1:])


class HookedLayerNorm(nn.LayerNorm):
    """torch's LayerNorm with HookedTransformer's hook points; fused if they have no hooks."""

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: AnyStream) -> AnyStream:
        if not listening(self.hook_scale, self.hook_normalized):
            return self.fused(x)
        centred = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(centred / scale) * self.weight + self.bias

    def fused(self, x: AnyStream) -> AnyStream:
        """The norm of x by torch's fused function: the same numbers as with hooks, but none fires."""
        return super().forward(x)


class HookedRMSNorm(nn.RMSNorm):
    """torch's RMSNorm with the same hook points."""

    eps: float

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__(d_model, eps=eps)
        self.hook_scale = HookPoint()
        self.hook_normalized = HookPoint()

    def forward(self, x: AnyStream) -> AnyStream:
        if not listening(self.hook_scale, self.hook_normalized):
            return self.fused(x)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(x / scale) * self.weight

    def fused(self, x: AnyStream) -> AnyStream:
        """The norm of x by torch's fused function: the same numbers as with hooks, but none fires."""
        return super().forward(x)


class RecurrentBlock(nn.Module):
    """A mixer between `hook_resid_pre` and `hook_resid_post`; the families add norms and residual streams."""

    hook_out_is_single_residual_stream = False  # TransformerLens' name for: the block adds to its input

    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.hook_resid_pre = HookPoint()
        self.hook_resid_post = HookPoint()

    def forward(self, resid: Stream) -> Stream:
        return self.hook_resid_post(self.run(self.hook_resid_pre(resid), self.mixer))

    def init_weights(self, generator: torch.Generator) -> None:
        """Sets the block's parameters from the generator."""
        self.mixer.init_weights(generator)

    def run(self, resid: AnyStream, mixer: Callable[[AnyStream], AnyStream]) -> AnyStream:
        """The block's output for an input. `mixer` is the block's mixer, or one streaming step of it."""
        return mixer(resid)

    def initial_carry(self, resid: StreamStep) -> Carry:
        """The carry with which a stream through this block starts."""
        return self.mixer.initial_carry(resid)

    def step(self, resid: StreamStep, carry: Carry) -> tuple[StreamStep, Carry]:
        """One position of a stream: its output, and the carry for the next one."""
        next_carry: list[Carry] = []

        def step_mixer(x: StreamStep) -> StreamStep:
            y, new = self.mixer.step(x, carry)
            next_carry.append(new)
            return y

        return self.run(resid, step_mixer), next_carry[0]

    def memory(self, carry: Carry) -> Memory:
        """All that later positions of this block can know of earlier ones."""
        return self.mixer.memory(carry)

    def with_memory(self, carry: Carry, memory: Memory) -> Carry:
        """The same carry with another memory."""
        return self.mixer.with_memory(carry, memory)


class RecurrentEmbed(nn.Module):
    def __init__(self, cfg: RecurrentConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))

    def forward(self, token_ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d_model"]:
        return F.embedding(token_ids, self.W_E)


class RecurrentUnembed(nn.Module):
    """The head, without bias."""

    def __init__(self, cfg: RecurrentConfig) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.empty(cfg.d_model, cfg.d_vocab))

    def forward(self, resid: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        return F.linear(resid, self.W_U.T)


class Recurrent(Counter):
    """A recurrent counter: embedding, blocks, head. Each family defines `build_block` and, if it has any, its norms."""

    cfg: RecurrentConfig
    has_positions: ClassVar[bool] = False
    ignores_positions: ClassVar[bool] = True

    def __init__(self, cfg: RecurrentConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.embed = RecurrentEmbed(cfg)
        self.hook_embed = HookPoint()
        self.ln_embed: nn.Module = self.build_embedding_norm()
        self.blocks = nn.ModuleList(self.build_block(layer) for layer in range(cfg.n_layers))
        self.ln_final: nn.Module = self.build_final_norm()
        self.unembed: nn.Module = self.build_unembed()
        self.setup()

    def _why_not(self, name: str) -> str:
        return " (a recurrent counter has no attention)" if ".attn." in name else ""

    def build_block(self, layer: int) -> RecurrentBlock:
        """The block of a layer."""
        raise TypeError(f"{type(self).__name__} does not define build_block")

    def build_embedding_norm(self) -> nn.Module:
        """The norm after the embedding; none, unless the family has one."""
        return nn.Identity()

    def build_final_norm(self) -> nn.Module:
        """The norm before the head; none, unless the family has one."""
        return nn.Identity()

    def build_unembed(self) -> nn.Module:
        """The head: one of its own, unless the family ties it to the embedding."""
        return RecurrentUnembed(self.cfg)

    def _logits(
        self, token_ids: TokenIds, position_ids: PositionIds, attention_mask: Bool[Tensor, "batch pos"] | None
    ) -> Logits:
        resid = self.ln_embed(self.hook_embed(self.embed(token_ids)))
        for block in self.blocks:
            resid = block(resid)
        return self.unembed(self.ln_final(resid))

    def step(
        self, token_ids: Int[Tensor, "batch"], carry: list[Carry] | None = None
    ) -> tuple[Float[Tensor, "batch d_vocab"], list[Carry]]:
        """Logits after one more token, and the carry to pass to the next call. The first call has no carry."""
        resid, next_carry = self.ln_embed(self.embed(token_ids)), []
        for layer, block in enumerate(self.blocks):
            assert isinstance(block, RecurrentBlock)
            resid, new = block.step(resid, block.initial_carry(resid) if carry is None else carry[layer])
            next_carry.append(new)
        norm = getattr(self.ln_final, "fused", self.ln_final)  # no hook fires in a stream
        return self.unembed(norm(resid)), next_carry

    def memory(self, carry: list[Carry]) -> list[Memory]:
        """All that later tokens can know of earlier ones, by layer."""
        return [block.memory(own) for block, own in zip(self.blocks, carry, strict=True)]  # type: ignore[operator]

    def with_memory(self, carry: list[Carry], memory: list[Memory]) -> list[Carry]:
        """What `step` takes to go on from this memory. The carry may be of any rows: only its constants are kept."""
        layers = zip(self.blocks, carry, memory, strict=True)
        return [block.with_memory(own, new) for block, own, new in layers]  # type: ignore[operator]

    def init_weights(self, generator: torch.Generator) -> None:
        """Draws the embedding from N(0, embed_std), then the head, then the weights of each block."""
        normal_(self.embed.W_E, self.cfg.embed_std, generator)
        self.init_unembed(generator)
        for block in self.blocks:
            assert isinstance(block, RecurrentBlock)
            block.init_weights(generator)

    def init_unembed(self, generator: torch.Generator) -> None:
        """Draws the head from N(0, 0.02), unless the family starts with something else."""
        assert isinstance(self.unembed, RecurrentUnembed)
        normal_(self.unembed.W_U, 0.02, generator)
