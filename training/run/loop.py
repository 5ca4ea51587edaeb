"""The training loop, the same for every family, task and device. It can be stopped at any step."""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from models.checkpoint import load_counter, load_tensors, save_counter, save_tensors
from models.counter import Counter
from models.families import build_counter
from models.header import CheckpointInfo, read_info
from training.batches import WeightedTokens, draw_tokens, grown_length
from training.config import RunConfig
from training.evaluate import Scores, evaluate
from training.presets import model_config, task_of
from training.run.device import (
    AUTOCAST_DTYPES,
    dropout_state,
    dropout_stream,
    prepare,
    restore_scaler,
    scaler_state,
)
from training.run.folder import RunFolder
from training.run.interrupt import stop_requested
from training.run.metrics import MetricsWriter
from training.run.optimiser import build_optimiser, kind_of, set_rates
from training.run.state import TrainState, fingerprint
from training.tasks import NOT_SCORED, Split, Task, task_settings

EVAL_SEED = 20_250_000  # of the rows on which the best checkpoint is chosen; they are the same in every run
SECONDS_BETWEEN_SAVES = 60.0  # the state is saved this often, and after every evaluation


def train(run: RunFolder, progress: bool = True) -> Scores:
    """Trains a run to its end, from where it stopped, and returns the scores of its best checkpoint."""
    with run.locked():
        if run.finished:
            config = run.config()
            return final_scores(load_counter(run.path, prepare(config.hardware)), config)
        trainer = Trainer(run)
        trainer.fit(progress)
        return trainer.finish()


def final_scores(counter: Counter, config: RunConfig) -> Scores:
    """The scores of a counter on rows on which no checkpoint was chosen."""
    return evaluate(counter, task_of(config), config.data.policy)


def loss_of(logits: Tensor, tokens: WeightedTokens) -> Tensor:
    """The mean cross-entropy over the scored tokens, weighted by their shares."""
    labels = tokens.batch.label_ids
    per_token = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=NOT_SCORED, reduction="none"
    ).view_as(labels)
    return (per_token * tokens.shares).sum() / (tokens.shares * (labels != NOT_SCORED)).sum()


def snapshot_steps(steps: int, snapshots: int) -> set[int]:
    """The steps at which snapshots are saved: log-spaced from 1 to the last step, and step 0."""
    if snapshots < 1:
        return set()
    ratio = steps ** (1 / max(1, snapshots - 1))
    return {0, steps} | {round(ratio**index) for index in range(snapshots)}


@dataclass(frozen=True)
class _Parts:
    """The objects that the loop works on, all built from a config."""

    task: Task
    counter: Counter
    optimiser: torch.optim.Optimizer
    generator: torch.Generator  # of training data


def _build(config: RunConfig, device: torch.device) -> _Parts:
    weights = torch.Generator().manual_seed(config.seed)
    counter = build_counter(model_config(config), weights).to(device)
    optimiser = build_optimiser(counter, config.optimiser, device)
    return _Parts(task_of(config), counter, optimiser, torch.Generator(device).manual_seed(config.seed + 1))


class Trainer:
    """One run in memory: `fit` trains it to its end; `training.sweep.timing` takes single steps of it."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.config = run.config()
        self.device = prepare(self.config.hardware)
        self.parts = _build(self.config, self.device)
        self.steps = self.config.optimiser.steps
        self.step, self.seconds = 0, 0.0
        self.best: dict[str, Any] | None = None
        self.digests: dict[str, str] = {}  # of the checkpoints up to this step, by their names in the run folder
        self.dropout = torch.Generator(self.device).manual_seed(self.config.seed + 2).get_state()
        # Halves of 16 bits cannot hold small gradients: the loss is scaled up for them.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.config.hardware.autocast == "fp16")
        # Dropout treats equal tokens differently: there, every row must be a draw of its own.
        self.independent_rows = self.config.model.has_dropout
        self.step_model: nn.Module = self.parts.counter
        if self.config.hardware.compile:
            self.step_model = torch.compile(self.parts.counter)  # type: ignore[assignment]
        state = run.load_state(self._template())
        if state is not None:
            self._restore(state)
        run.forget_metrics_after(self.step)
        self.writer = MetricsWriter(run, self.config.record.tensorboard, purge_step=self.step + 1)

    def fit(self, progress: bool) -> None:
        snapshots = snapshot_steps(self.steps, self.config.record.snapshots)
        if self.step == 0 and 0 in snapshots:
            self._save(self.run.snapshot(0), None)
        bar = tqdm(
            total=self.steps,
            initial=self.step,
            disable=not progress,
            unit="step",
            dynamic_ncols=True,
            desc=self.config.data.task,
        )
        started = time.perf_counter() - self.seconds
        saved = self.seconds
        scores: dict[str, float] = {}
        with bar, self.writer, dropout_stream(self.device, self.dropout), stop_requested() as stopping:
            while self.step < self.steps:
                loss = self.advance()
                self.seconds = time.perf_counter() - started
                if self.step in snapshots:
                    self._save(self.run.snapshot(self.step), None)
                evaluating = self.step % self.config.record.eval_every == 0 or self.step == self.steps
                if evaluating:
                    scores = self.record(float(loss), self.score())
                if evaluating or stopping() or self.seconds - saved > SECONDS_BETWEEN_SAVES:
                    self.save_state()
                    saved = self.seconds
                if stopping():
                    raise KeyboardInterrupt
                bar.update()
                if self.step % 10 == 0 or self.step == self.steps:
                    shown = [f"{name}={value:.1f}" for name, value in scores.items()]
                    bar.set_postfix_str(", ".join([f"loss={float(loss):.4f}", *shown]))

    def finish(self) -> Scores:
        """Scores the best and the last checkpoint, removes the state, and returns the scores of the best.

        If it is stopped at any point, the resumed run does all of it again, with the same result.
        """
        assert self.best is not None  # the last step is always evaluated
        self.run.check_best(self.digests[self.run.best.name])
        best = final_scores(load_counter(self.run.best, self.device), self.config)
        last = best if self.best["step"] == self.step else final_scores(self._reload(), self.config)
        replace_scores(self.run.best, best.summary, last.summary)
        self._save(self.run.last, last.summary)
        self.run.finish()
        return best

    def _reload(self) -> Counter:
        """The counter as a checkpoint file would return it: some schemes' weights change a little by being stored."""
        counter = build_counter(self.parts.counter.cfg)
        counter.load_interchange_state(self.parts.counter.interchange_state())
        return counter.to(self.device).eval()

    def advance(self) -> Tensor:
        """Does one optimiser step and returns its loss."""
        parts, options = self.parts, self.config.optimiser
        tokens = self.draw("train", options.batch_size)
        batch = tokens.batch
        mask = None if parts.counter.cfg.causal else batch.attention_mask
        self.step_model.train()
        precision = self.config.hardware.autocast
        with torch.autocast(self.device.type, AUTOCAST_DTYPES[precision], enabled=precision != "fp32"):
            logits = self.step_model(batch.token_ids, batch.position_ids, mask)
        loss = loss_of(logits, tokens)
        parts.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(loss + parts.counter.penalty(logits, tokens.shares)).backward()
        self.scaler.unscale_(parts.optimiser)
        nn.utils.clip_grad_norm_(parts.counter.parameters(), options.clip if options.clip > 0 else math.inf)
        set_rates(parts.optimiser, self.step, options)
        self.scaler.step(parts.optimiser)
        self.scaler.update()
        self.step += 1
        return loss.detach()

    def draw(self, split: Split, rows: int) -> WeightedTokens:
        """Draws the rows of one training step."""
        tokens = draw_tokens(
            self.parts.counter,
            self.parts.task,
            self.config.data.policy,
            split,
            rows,
            self.parts.generator,
            self.independent_rows,
        )
        n_pos = tokens.shares.shape[1]
        length = grown_length(self.step, self.config.optimiser.length_warmup, n_pos)
        return tokens if length == n_pos else tokens.beginnings(length)

    def score(self) -> Scores:
        """The counter's current scores, on the rows on which the best checkpoint is chosen."""
        rows = self.config.record.eval_rows
        return evaluate(self.parts.counter, self.parts.task, self.config.data.policy, rows, EVAL_SEED)

    def record(self, loss: float, scores: Scores) -> dict[str, float]:
        """Writes the scores and, if their mean is the best so far, the best checkpoint. Returns the scores' summary.

        Of equal ones the later is kept: an LSTM that has just reached 100 is often still wrong beyond position 100.
        """
        summary = scores.summary
        lr = self.parts.optimiser.param_groups[0]["lr"]
        self.writer.write(
            {"step": self.step, "seconds": round(self.seconds, 2), "loss": loss, "lr": lr, **summary},
            scores.by_position,
        )
        if self.best is None or summary["ind"] + summary["ood"] >= self.best["ind"] + self.best["ood"]:
            self.best = {"step": self.step, **summary}
            self._save(self.run.best, summary)
        return summary

    def _save(self, path: Path, scores: dict[str, float] | None) -> None:
        save_counter(path, self.parts.counter, describe_checkpoint(self.config, self.step, scores or {}))
        self.digests[path.relative_to(self.run.path).as_posix()] = fingerprint(path)

    def save_state(self) -> None:
        """Saves the state from which a stopped run resumes."""
        self.run.save_state(self._state())

    def _state(self) -> TrainState:
        tensors = self._state_tensors(self.parts.optimiser.state_dict()["state"])
        return TrainState(
            self.step,
            self.seconds,
            self.best,
            self.digests,
            {name: tensor.cpu().contiguous() for name, tensor in tensors.items()},
        )

    def _template(self) -> dict[str, Tensor]:
        """Tensors with the names, shapes and dtypes of this run's state, whatever their values are."""
        parameters = [parameter for group in self.parts.optimiser.param_groups for parameter in group["params"]]
        kind = kind_of(self.config.optimiser)
        return self._state_tensors({index: kind.state(parameter) for index, parameter in enumerate(parameters)})

    def _state_tensors(self, moments: dict[int, dict[str, Tensor]]) -> dict[str, Tensor]:
        tensors = {f"model.{name}": tensor for name, tensor in self.parts.counter.state_dict().items()}
        for index, values in moments.items():
            tensors |= {f"optimiser.{index}.{name}": tensor for name, tensor in values.items()}
        tensors["generator"] = self.parts.generator.get_state()
        tensors["dropout"] = dropout_state(self.device)
        if self.scaler.is_enabled():
            tensors["scaler"] = scaler_state(self.scaler)
        return tensors

    def _restore(self, state: TrainState) -> None:
        self.step, self.seconds, self.best, self.digests = state.step, state.seconds, state.best, state.digests
        model: dict[str, Tensor] = {}
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "model":
                model[rest] = tensor
            elif kind == "optimiser":
                index, _, moment = rest.partition(".")
                moments.setdefault(int(index), {})[moment] = tensor
        self.parts.counter.load_state_dict(model)
        groups = self.parts.optimiser.state_dict()["param_groups"]
        self.parts.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        self.parts.generator.set_state(state.tensors["generator"])
        self.dropout = state.tensors["dropout"]
        if self.scaler.is_enabled():
            restore_scaler(self.scaler, state.tensors["scaler"])


def describe_checkpoint(config: RunConfig, step: int, scores: dict[str, float]) -> CheckpointInfo:
    """The metadata of a checkpoint of a run. `save_counter` fills in the family and the model's config."""
    return CheckpointInfo(
        family="",
        model={},
        task=task_settings(task_of(config)),
        policy=config.data.policy,
        seed=config.seed,
        step=step,
        scores=scores,
        training=config.to_dict(),
    )


def replace_scores(path: Path, scores: dict[str, float], last_scores: dict[str, float]) -> None:
    """Replaces the scores in a checkpoint file; its tensors stay the same, bit for bit."""
    info = replace(read_info(path), scores=scores, last_scores=last_scores)
    save_tensors(path, load_tensors(path), info.to_metadata())
