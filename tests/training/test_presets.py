"""Presets, names and the optimiser's schedule."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.errors import CountLensError
from models.families import FAMILIES
from models.schemes import SCHEMES
from training.config import (
    DeviceOptions,
    ModelOptions,
    OptimiserOptions,
    RecordOptions,
    RunConfig,
    TaskOptions,
    TrainConfig,
)
from training.presets import model_config, preset_recipe, resolve, run_name
from training.run.folder import RunFolder
from training.run.loop import Trainer
from training.run.optimiser import lr_factor
from training.tasks import TASKS

OF_OTHER_FAMILIES = {"dropout", "d_state", "state_lr", "state_decay", "d_head", "input_std"}  # no transformer has them

MAY_BE_OPEN = {"embed_std", "periods", "embed_lr", "embed_decay", "position_decay", "length_warmup", "algorithm"}


def config(task: str = "mod10", preset: str = "small", **model: object) -> TrainConfig:
    return TrainConfig(preset=preset, data=TaskOptions(task=task), model=ModelOptions(**model))


@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("position", SCHEMES)
def test_every_preset_has_a_sound_recipe_for_every_task_and_scheme(task: str, position: str, preset: str) -> None:
    resolved = resolve(config(task, preset, position=position))
    options = [resolved.data, resolved.model, resolved.optimiser, resolved.record]
    missing = {name for group in options for name, value in vars(group).items() if value is None}
    assert missing - MAY_BE_OPEN == OF_OTHER_FAMILIES
    assert "periods" not in resolved.to_dict()["model"]  # files are as they were before there was such an option
    assert resolve(resolved) == resolved
    assert RunConfig.from_dict(resolved.to_dict()) == resolved
    assert resolve(TrainConfig.from_dict(resolved.to_dict())) == resolved


@pytest.mark.parametrize(("group", "name"), [("data", "ood_length"), ("model", "d_model"), ("optimiser", "lr")])
def test_a_run_leaves_nothing_open_that_it_needs(group: str, name: str) -> None:
    values = resolve(TrainConfig()).to_dict()
    with pytest.raises(CountLensError, match=f"{name} = None: must be"):
        RunConfig.from_dict(values | {group: values[group] | {name: None}})
    del values[group][name]
    with pytest.raises(CountLensError, match=f"{group} lacks the setting {name}"):
        RunConfig.from_dict(values)


@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "transformer"])
def test_every_recurrent_family_has_a_sound_recipe_at_any_width(family: str, preset: str) -> None:
    for width in (None, 24, 96):
        resolved = resolve(config("selective", preset, family=family, d_model=width))
        assert resolve(resolved) == resolved
        counter = model_config(resolved)
        assert type(counter) is FAMILIES[family].config
        assert width in (None, counter.d_model)
    assert (resolved.model.position, resolved.model.n_heads, resolved.model.d_mlp) == (None, None, None)


def test_the_paper_preset_has_each_familys_own_settings() -> None:
    s4, rwkv6 = (resolve(config(preset="paper", family=family)) for family in ("s4", "rwkv6"))
    assert (s4.optimiser.lr, s4.model.dropout, s4.model.embed_std, s4.model.d_model) == (1e-2, 0.1, 1.0, 128)
    assert (rwkv6.optimiser.lr, rwkv6.optimiser.beta2, rwkv6.model.dropout) == (1e-4, 0.99, 0.1)


def test_the_papers_rnn_is_1024_wide_and_without_dropout() -> None:
    rnn, lstm = (resolve(config("selective", "paper", family=family)) for family in ("rnn", "lstm"))
    assert (rnn.model.d_model, lstm.model.d_model) == (1024, 128)
    for resolved in (rnn, lstm):
        assert (resolved.optimiser.lr, resolved.optimiser.warmup_steps, resolved.model.dropout) == (1e-3, 0, 0.0)


@pytest.mark.parametrize(
    ("task", "steps"),
    [
        *(("mod10", 312_500), ("shifted_start", 312_500), ("first_tok_homogeneous", 312_500)),
        *(("selective", 625_000), ("selective_mod4", 625_000), ("vanilla_succession", 625_000)),
        *(("helper", 625_000), ("helper_shifted", 625_000)),
    ],
)
def test_the_paper_preset_trains_as_long_as_the_paper(task: str, steps: int) -> None:
    resolved = resolve(config(task, "paper"))
    assert (resolved.optimiser.steps, resolved.record.eval_every) == (steps, 30_000)


@pytest.mark.parametrize(
    ("model", "option"),
    [
        ({"family": "lstm", "position": "ape"}, "--position"),
        ({"family": "rnn", "n_heads": 2}, "--n-heads"),
        ({"family": "mamba", "causal": False}, "--causal"),
        ({"position": "ape", "d_state": 4}, "--d-state"),
    ],
)
def test_options_of_another_family_are_refused(model: dict[str, object], option: str) -> None:
    with pytest.raises(CountLensError, match=f"{option} is not an option of the family"):
        resolve(config(**model))


def test_the_paper_preset_is_the_papers() -> None:
    resolved = resolve(config(preset="paper", n_layers=4))
    model = model_config(resolved)
    assert (model.d_model, model.n_heads, model.d_mlp, model.n_layers, model.init_std) == (1024, 8, 4096, 4, 0.02)
    assert (model.max_position, model.d_vocab) == (128, 13)  # 1..10, a, <pad>, <bos>
    optimiser = resolved.optimiser
    assert (optimiser.lr, optimiser.warmup_steps, optimiser.schedule) == (1e-4, 3000, "constant")
    assert (optimiser.batch_size, optimiser.steps, optimiser.clip, optimiser.weight_decay) == (32, 312_500, 1.0, 0.01)
    assert resolved.record.eval_every == 30_000


def test_what_is_given_wins_over_the_preset() -> None:
    given = replace(config(d_model=128), optimiser=OptimiserOptions(lr=5e-4))
    resolved = resolve(given)
    assert (resolved.model.d_model, resolved.model.d_mlp, resolved.optimiser.lr) == (128, 512, 5e-4)
    assert resolved.optimiser.steps == preset_recipe(given).steps


@pytest.mark.parametrize(("ood", "max_position"), [(50, 64), (100, 128), (200, 256)])
def test_positions_scale_with_the_ood_length_as_in_the_paper(ood: int, max_position: int) -> None:
    data = TaskOptions(task="shifted_start", train_length=25, ood_length=ood)
    assert resolve(TrainConfig(data=data)).data.max_position == max_position


@pytest.mark.parametrize(
    ("data", "model", "name"),
    [
        ({}, {}, "mod10/ape-2L/seed0"),
        ({"bos": True}, {"position": "nope", "n_layers": 1}, "mod10-bos/nope-1L/seed0"),
        ({}, {"d_model": 48}, "mod10/ape-2L-48d/seed0"),
        ({"task": "first_tok_heterogeneous"}, {"position": "nope", "causal": False}, "{task}/nope-1L-noncausal/seed0"),
        ({"task": "shifted_start", "train_length": 25, "ood_length": 200}, {}, "{task}/ape-2L-25to200/seed0"),
        ({"policy": "randomised"}, {}, "mod10/ape-2L-randomised/seed0"),
        ({"max_position": 200}, {}, "mod10/ape-2L-200pids/seed0"),
        ({}, {"d_mlp": 100}, "mod10/ape-2L-mlp100/seed0"),
        ({}, {"d_model": 128, "d_mlp": 512}, "mod10/ape-2L-128d/seed0"),
        ({}, {"family": "s4", "d_state": 8}, "mod10/s4-1L-state8/seed0"),
        ({}, {"family": "s4", "d_state": 64}, "mod10/s4-1L/seed0"),
        ({}, {"family": "rwkv6", "d_head": 32}, "mod10/rwkv6-1L-head32/seed0"),
        ({}, {"position": "rope", "periods": (10.0, 20.0)}, "mod10/rope-2L-periods10_20/seed0"),
        ({}, {"position": "rope", "periods": (10.025, 20.05)}, "mod10/rope-2L-periods10.025_20.05/seed0"),
    ],
)
def test_names_say_what_a_run_is(data: dict[str, object], model: dict[str, object], name: str) -> None:
    options = TaskOptions(**data)
    config = resolve(TrainConfig(data=options, model=ModelOptions(**model)))
    assert run_name(config) == name.format(task=options.task)


def test_a_run_of_another_preset_or_seed_has_another_name() -> None:
    assert run_name(resolve(TrainConfig(preset="paper", seed=3))) == "mod10/ape-2L-paper/seed3"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (config(preset="smal"), "unknown preset 'smal': did you mean small"),
        (config(family="transformers"), "unknown family 'transformers': did you mean transformer"),
        (config(position="rop"), "unknown positional scheme"),
        (config(task="mod_10"), "unknown task"),
        (config(d_model=31), "not divisible by n_heads"),
        (config(family="lstm", n_layers=1, dropout=0.1), "dropout=0.1 would do nothing"),
        (TrainConfig(data=TaskOptions(max_position=64)), "rows of up to 100 tokens, more than max_position=64"),
        (TrainConfig(data=TaskOptions(policy="shift")), "unknown position policy 'shift': did you mean shifted"),
        (TrainConfig(optimiser=OptimiserOptions(steps=0)), "steps=0: must be at least 1"),
        (TrainConfig(optimiser=OptimiserOptions(lr=math.nan)), "lr=nan: must be at least 0 and at most 100"),
        (TrainConfig(optimiser=OptimiserOptions(beta2=2.0)), r"beta2=2\.0: must be above 0 and below 1"),
        (TrainConfig(record=RecordOptions(eval_rows=-1)), "eval_rows=-1: must be at least 1"),
        (TrainConfig(record=RecordOptions(snapshots=10**12)), "snapshots=1000000000000: must be at least 0"),
        (TrainConfig(hardware=DeviceOptions(threads=0)), "threads=0: must be at least 1"),
        (TrainConfig(seed=-1), "seed=-1: must be at least 0"),
        (TrainConfig(data=TaskOptions(task="mod99999999999")), "base=99999999999: must be at least 2"),
    ],
)
def test_configs_that_cannot_be_trained_are_refused_before_anything_is_written(
    changed: TrainConfig, message: str
) -> None:
    with pytest.raises(CountLensError, match=message):
        resolve(changed)


def test_the_learning_rate_warms_up_and_then_falls_or_stays() -> None:
    cosine = replace(resolve(TrainConfig()).optimiser, steps=110, warmup_steps=10, schedule="cosine")
    assert [round(lr_factor(step, cosine), 3) for step in (0, 4, 9, 10, 60, 110)] == [0.1, 0.5, 1.0, 1.0, 0.5, 0.0]
    constant = replace(cosine, schedule="constant")
    assert [lr_factor(step, constant) for step in (4, 10, 109)] == [0.5, 1.0, 1.0]
    assert lr_factor(0, replace(constant, warmup_steps=0)) == 1.0


@pytest.mark.parametrize(
    "model", [{"family": family} for family in FAMILIES if family != "transformer"] + [{}], ids=str
)
def test_the_token_embedding_may_learn_at_a_rate_of_its_own(model: dict[str, str], tmp_path: Path) -> None:
    """With a rate of 0 it stays as it began, and all else is trained; with 1 nothing differs from no such option."""
    weights: dict[float | None, dict[str, torch.Tensor]] = {}
    for rate in (None, 0.0, 1.0):
        optimiser = OptimiserOptions(steps=3, batch_size=2, embed_lr=rate)
        options = config("selective", d_model=16, n_layers=1, **model)
        trainer = Trainer(RunFolder.create(tmp_path / str(rate), resolve(replace(options, optimiser=optimiser))))
        torch.manual_seed(0)  # of dropout
        first = {name: tensor.clone() for name, tensor in trainer.parts.counter.named_parameters()}
        for _ in range(3):
            trainer.advance()
        weights[rate] = dict(trainer.parts.counter.named_parameters())
        trained = {name for name, tensor in weights[rate].items() if not torch.equal(tensor, first[name])}
        assert ("embed.W_E" in trained) == (rate != 0)
        assert "unembed.W_U" in trained or model == {"family": "mamba"}  # whose head is its embedding
    for name, tensor in weights[None].items():
        torch.testing.assert_close(weights[1.0][name], tensor)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_token_embedding_may_have_a_decay_of_its_own(family: str, tmp_path: Path) -> None:
    """AdamW multiplies by 1 - lr x decay: with a decay of 1 / lr one step leaves nothing of what was there before."""
    weights: dict[float | None, dict[str, torch.Tensor]] = {}
    lr = 0.01
    for decay in (None, 1 / lr, 0.1):
        optimiser = OptimiserOptions(
            steps=3,
            batch_size=2,
            lr=lr,
            warmup_steps=0,
            schedule="constant",
            algorithm="adamw",
            weight_decay=0.1,
            embed_decay=decay,
        )
        options = config("selective", d_model=16, n_layers=1, family=family)
        trainer = Trainer(RunFolder.create(tmp_path / str(decay), resolve(replace(options, optimiser=optimiser))))
        torch.manual_seed(0)  # of dropout
        trainer.advance()
        weights[decay] = dict(trainer.parts.counter.named_parameters())
    assert weights[1 / lr]["embed.W_E"].abs().max() <= lr * 1.001  # Adam's first step is as long as its rate
    assert weights[None]["embed.W_E"].abs().max() > lr * 1.5 or family == "rwkv6"  # which begins at next to 0
    for name, tensor in weights[None].items():
        torch.testing.assert_close(weights[0.1][name], tensor)
        if name != "embed.W_E":
            torch.testing.assert_close(weights[1 / lr][name], tensor)


def test_learned_positions_may_have_a_decay_of_their_own(tmp_path: Path) -> None:
    """With a decay of 1 / lr one step leaves nothing of what was there before, and all else is as without it."""
    weights: dict[float | None, dict[str, torch.Tensor]] = {}
    lr = 0.01
    for decay in (None, 1 / lr):
        optimiser = OptimiserOptions(batch_size=2, lr=lr, warmup_steps=0, embed_lr=0.5, position_decay=decay)
        options = replace(config("selective", d_model=16, n_layers=1, position="ape"), optimiser=optimiser)
        trainer = Trainer(RunFolder.create(tmp_path / str(decay), resolve(options)))
        trainer.advance()
        weights[decay] = dict(trainer.parts.counter.named_parameters())
    positions = weights[1 / lr].pop("pos_embed.W_pos")
    assert positions.abs().max() <= lr * 1.001  # Adam's first step is as long as its rate
    assert weights[None]["pos_embed.W_pos"].abs().max() > 10 * lr
    for name, tensor in weights[1 / lr].items():
        assert torch.equal(weights[None][name], tensor)


@pytest.mark.parametrize("model", [{"position": "nope"}, {"position": "sine"}, {"family": "lstm"}])
def test_a_decay_of_positions_that_are_not_learned_is_refused(model: dict[str, str]) -> None:
    (name,) = model.values()
    options = replace(config("selective", **model), optimiser=OptimiserOptions(position_decay=1.0))
    with pytest.raises(CountLensError, match=rf"for learned positions \(ape\), and {name} has none"):
        resolve(options)


def test_rows_that_grow_are_cut_in_the_first_steps_only(tmp_path: Path) -> None:
    options = replace(
        config("selective", d_model=8), optimiser=OptimiserOptions(steps=6, batch_size=2, length_warmup=3)
    )
    trainer = Trainer(RunFolder.create(tmp_path / "run", resolve(options)))
    lengths = []
    for _ in range(5):
        lengths.append(trainer.draw("train", 2).shares.shape[1])
        trainer.advance()
    assert lengths == [20, 35, 50, 50, 50]


def test_rows_are_whole_from_the_first_step_on_if_a_user_says_so_against_the_recipe(tmp_path: Path) -> None:
    growing = config("helper_shifted", position="nope", n_layers=2, d_model=8, n_heads=1)
    assert resolve(growing).optimiser.length_warmup
    whole = resolve(replace(growing, optimiser=OptimiserOptions(length_warmup=0)))
    run = RunFolder.create(tmp_path / "run", whole)
    assert run.config() == whole
    assert Trainer(run).draw("train", 2).shares.shape[1] == 100


@pytest.mark.parametrize(
    ("option", "value", "label"),
    [
        ("embed_lr", 0.01, "embedlr0.01"),
        ("embed_decay", 0.01, "embedwd0.01"),
        ("position_decay", 3.0, "poswd3"),
        ("length_warmup", 9, "grow9"),
        ("algorithm", "soap", "soap"),
    ],
)
def test_files_say_nothing_of_a_later_option_that_is_not_set(option: str, value: float, label: str) -> None:
    """So the files of runs that were trained before there was such an option stay the same."""
    usual = resolve(config("mod10"))
    changed = resolve(replace(config("mod10"), optimiser=OptimiserOptions(**{option: value})))
    assert option not in usual.to_dict()["optimiser"]
    assert RunConfig.from_dict(changed.to_dict()) == changed
    assert run_name(changed) == f"mod10/ape-2L-{label}/seed0"
