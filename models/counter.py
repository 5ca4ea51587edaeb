"""The interface that every counter has, attention or recurrent, so that one probe and one page serve all of them."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.hook_points import HookPoint

from models.errors import CountLensError
from models.header import CheckpointInfo
from models.shapes import Logits, PositionIds, TokenIds

StateDict = dict[str, Tensor]
HookList = Sequence[tuple[str | Callable[[str], bool], Callable[..., Any]]]

# A ContextVar, so that threads which share a counter never see each other's positions.
_bound_position_ids: ContextVar[Tensor | None] = ContextVar("bound_position_ids", default=None)


def listening(*hook_points: HookPoint) -> bool:
    """Whether any of these hook points has a hook, forward or backward."""
    return any(point.fwd_hooks or point.bwd_hooks for point in hook_points)


class Counter(HookedRootModule):  # type: ignore[misc]
    """A hooked sequence model: `forward(token_ids, position_ids) -> logits`, `cfg`, `blocks.{l}.hook_resid_*`."""

    cfg: Any  # the family's config
    info: CheckpointInfo | None = None  # the metadata of its checkpoint file, if it was loaded from one
    has_positions: ClassVar[bool] = True  # position ids must be below cfg.max_position
    ignores_positions: ClassVar[bool] = False  # logits do not depend on position ids

    @property
    def ignores_shifts(self) -> bool:
        """Whether logits stay the same when all position ids of a row move by one offset."""
        return self.ignores_positions

    def forward(
        self,
        token_ids: TokenIds,
        position_ids: PositionIds | None = None,
        attention_mask: Bool[Tensor, "batch pos"] | None = None,
    ) -> Logits:
        """Logits at every position.

        `position_ids` has one row per example and is never assumed to be an arange. Call tools that can only pass
        tokens inside `with counter.at_positions(position_ids):`. `attention_mask` is False at padding; only counters
        that see later tokens need it.
        """
        if position_ids is None:
            position_ids = _bound_position_ids.get()
        if position_ids is None:
            raise CountLensError(
                "position ids are an argument: pass position_ids=[batch, pos], "
                "or call inside `with counter.at_positions(position_ids):`"
            )
        if not self.training:
            self._check(token_ids, position_ids)
        return self._logits(token_ids, position_ids, attention_mask)

    def _logits(
        self, token_ids: TokenIds, position_ids: PositionIds, attention_mask: Bool[Tensor, "batch pos"] | None
    ) -> Logits:
        raise TypeError(f"{type(self).__name__} does not define _logits")

    def _check(self, token_ids: TokenIds, position_ids: PositionIds) -> None:
        """Refuses ids outside the embedding tables. Training skips this check: its samplers only make valid ids."""
        if token_ids.shape != position_ids.shape:
            raise CountLensError(
                f"token_ids {tuple(token_ids.shape)} and position_ids {tuple(position_ids.shape)} "
                "differ: give one position id for each token"
            )
        _check_range("token", token_ids, self.cfg.d_vocab, "d_vocab", "encode with the task's own vocabulary")
        if not self.has_positions:
            return
        _check_range(
            "position",
            position_ids,
            self.cfg.max_position,
            "max_position",
            "shorten the sequence or train with a larger max_position",
        )

    @contextmanager
    def at_positions(self, position_ids: PositionIds) -> Iterator["Counter"]:
        """Binds position ids for calls that pass none, such as those of TransformerLens' own tools."""
        token = _bound_position_ids.set(position_ids)
        try:
            yield self
        finally:
            _bound_position_ids.reset(token)

    def run_with_cache(self, *args: Any, **kwargs: Any) -> tuple[Logits, ActivationCache]:
        """Logits, and an `ActivationCache` of every hook point that fired.

        `hook_state_step` fires once per position, so the cache would hold only the last one. It is left out unless
        `names_filter` names it; `hook_state` has the whole trajectory.
        """
        names_filter = kwargs.get("names_filter")
        if names_filter is None:
            kwargs["names_filter"] = lambda name: not name.endswith("hook_state_step")
        elif not callable(names_filter):
            self._check_listeners([names_filter] if isinstance(names_filter, str) else names_filter)
        remove_batch_dim = kwargs.pop("remove_batch_dim", False)
        logits, cache = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kwargs)
        return logits, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    def run_with_hooks(self, *args: Any, fwd_hooks: HookList = (), bwd_hooks: HookList = (), **kwargs: Any) -> Logits:
        """Logits of one run with these hooks. The name of a hook point that never fires is refused."""
        self._check_listeners([name for name, _ in (*fwd_hooks, *bwd_hooks)])
        return super().run_with_hooks(*args, fwd_hooks=list(fwd_hooks), bwd_hooks=list(bwd_hooks), **kwargs)

    def _check_listeners(self, names: Sequence[str | Callable[[str], bool]]) -> None:
        """Refuses names of hook points that do not exist or are switched off."""
        for name in names:
            if callable(name):
                continue
            if name not in self.hook_dict:
                similar = difflib.get_close_matches(name, self.hook_dict, n=3)
                hint = f"did you mean {' or '.join(similar)}?" if similar else "counter.hook_dict names them all"
                raise CountLensError(f"{type(self).__name__} has no hook point {name!r}{self._why_not(name)}: {hint}")
            switch = self._switch_of(name)
            if switch is not None:
                raise CountLensError(f"{name} does not fire unless it is switched on: counter.{switch}(True)")

    def _why_not(self, name: str) -> str:
        """Why this family lacks a hook point, as a remark for an error message; empty if there is no reason."""
        return ""

    def _switch_of(self, name: str) -> str | None:
        """The name of the method that switches a hook point on; None if the hook point is on."""
        return None

    def to_tokens(self, token_ids: TokenIds | Sequence[Sequence[int]], **_: Any) -> TokenIds:
        """The ids as a tensor on the counter's device. There is no text tokenizer: use the task's vocabulary."""
        return torch.as_tensor(token_ids, dtype=torch.long, device=self.device)

    def to_single_token(self, token: str) -> int:
        """Refuses: TransformerLens' tools call this for tokens given as text."""
        raise CountLensError(f"a counter cannot read {token!r}: pass its id, as the task's `vocab.id` gives it")

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    # How the head reads the residual stream, under the names that TransformerLens' logit lens and attribution use.
    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        return self.unembed.W_U

    @property
    def b_U(self) -> Float[Tensor, "d_vocab"]:
        """Zeros: no counter's head has a bias."""
        return self.W_U.new_zeros(self.cfg.d_vocab)

    @property
    def final_gain(self) -> Float[Tensor, "d_model"]:
        """The final norm's factor for each column of the normalised residual stream; ones if there is no such norm."""
        return getattr(self.ln_final, "weight", self.W_U.new_ones(self.cfg.d_model))

    def tokens_to_residual_directions(self, tokens: int | Int[Tensor, "*tokens"]) -> Float[Tensor, "*tokens d_model"]:
        """For each token, the direction whose dot product with the normalised residual stream is the token's logit.

        The final norm's gain is included, so that attributions add up without folding weights. Its bias is left out:
        that part of a logit is the same everywhere, and no component writes it.
        """
        return (self.final_gain * self.W_U.T)[tokens]

    def parameter_groups(self, lr: float, weight_decay: float) -> list[dict[str, Any]]:
        """The parameter groups for the optimiser: one with all parameters, unless the family needs several."""
        return [{"params": list(self.parameters()), "lr": lr, "weight_decay": weight_decay}]

    @property
    def learned_positions(self) -> nn.Parameter | None:
        """The table of learned positions; None if this counter has none."""
        return None

    def penalty(self, logits: Logits, weights: Float[Tensor, "batch pos"]) -> Float[Tensor, ""]:
        """The term that training adds to the mean cross-entropy: 0, unless the family is trained with one.

        `weights` says how many tokens each token stands for.
        """
        return logits.new_zeros(())

    def init_weights(self, generator: torch.Generator) -> None:
        """Sets every parameter to a fresh initial value, drawn from the generator."""
        raise TypeError(f"{type(self).__name__} does not define init_weights")

    def interchange_state(self) -> StateDict:
        """The tensors by name, as a checkpoint file stores them."""
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}

    def load_interchange_state(self, state: StateDict) -> None:
        """Sets the parameters from the tensors of a checkpoint file: the inverse of `interchange_state`."""
        self.load_state_dict(state)

    def transformer_lens_config(self) -> dict[str, Any] | None:
        """The config with which TransformerLens loads `interchange_state`; None if it has no such architecture."""
        return None


def _check_range(what: str, ids: Tensor, end: int, limit: str, way_out: str) -> None:
    if ids.numel() == 0:
        raise CountLensError(f"no {what} ids: shape {tuple(ids.shape)}")
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= end:
        bad = low if low < 0 else high
        raise CountLensError(f"{what} {bad} is outside 0..{end - 1} ({limit}={end}): {way_out}")


def normal_(parameter: nn.Parameter, std: float, generator: torch.Generator) -> None:
    """Fills a parameter with draws from N(0, std), made on the CPU so that a seed gives the same weights everywhere."""
    with torch.no_grad():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)


def uniform_(parameter: nn.Parameter, bound: float, generator: torch.Generator) -> None:
    """Fills a parameter with uniform draws from -bound to bound, made on the CPU."""
    with torch.no_grad():
        parameter.copy_((torch.rand(parameter.shape, generator=generator) * 2 - 1) * bound)
