"""A config with its preset's values filled in, and the name of its run."""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from models.border import check_fields
from models.config import CounterConfig
from models.errors import CountLensError, unknown
from models.families import FAMILIES
from models.schemes import SCHEMES
from training.config import (
    DEFAULT_POSITION,
    ModelOptions,
    ModelSettings,
    OptimiserSettings,
    RecordSettings,
    RunConfig,
    TaskOptions,
    TaskSettings,
    TrainConfig,
    architecture_name,
)
from training.policies import get_policy
from training.recipes import PRESETS, Recipe
from training.tasks import Task, check_sound, make_task


def preset_recipe(config: TrainConfig) -> Recipe:
    """The preset's recipe for the task, architecture and layers of a config."""
    if config.preset not in PRESETS:
        raise unknown("preset", config.preset, PRESETS)
    if config.model.family not in FAMILIES:
        raise unknown("family", config.model.family, FAMILIES)
    model = config.model
    return PRESETS[config.preset](config.data.task, architecture_name(model), config.data.bos, model.n_layers)


def resolve(config: TrainConfig) -> RunConfig:
    """The config with every open setting filled in from its preset. Refuses a config that cannot be trained."""
    check_fields(config)
    recipe = preset_recipe(config)
    task = task_of(config)
    lengths = {
        "train_length": task.train_length,
        "ood_length": task.ood_length,
        "max_position": config.data.max_position or task.max_position,
    }
    resolved = RunConfig(
        preset=config.preset,
        seed=config.seed,
        data=TaskSettings(**vars(config.data) | lengths),
        model=_resolve_model(config.model, recipe),
        optimiser=OptimiserSettings(**_fill(config.optimiser, vars(recipe))),
        record=RecordSettings(**_fill(config.record, vars(recipe))),
        hardware=config.hardware,
    )
    check_sound(task, resolved.data.max_position)
    _check_positions(resolved)
    get_policy(resolved.data.policy)
    model_config(resolved)
    return resolved


def _check_positions(config: RunConfig) -> None:
    """Refuses a decay of learned positions for a counter that has none."""
    scheme = SCHEMES.get(config.model.position or "")
    if config.optimiser.position_decay is not None and not (scheme and scheme.learned):
        learned = ", ".join(name for name, scheme in SCHEMES.items() if scheme.learned)
        raise CountLensError(
            f"--position-decay is for learned positions ({learned}), and {architecture_name(config.model)} has none: "
            "leave it out"
        )


def _fill(options: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a dict, in which `values` replace those that are None."""
    return {name: values.get(name) if value is None else value for name, value in vars(options).items()}


def task_of(config: TrainConfig) -> Task:
    """The task that a config describes."""
    return _task(config.data)


@lru_cache(maxsize=1024)  # a large grid needs each task many times
def _task(data: TaskOptions) -> Task:
    return make_task(data.task, bos=data.bos, train_length=data.train_length, ood_length=data.ood_length)


def _resolve_model(options: ModelOptions, recipe: Recipe) -> ModelSettings:
    """The model settings, with a value for every field of the family. Refuses options that the family lacks."""
    config = FAMILIES[options.family].config
    known = {field.name for field in fields(config)} | {"family"}
    foreign = {field.name: field.default for field in fields(ModelOptions) if field.name not in known}
    refused = [name for name, default in foreign.items() if getattr(options, name) not in (default, None)]
    if refused:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
        raise CountLensError(f"{flags} is not an option of the family {options.family}: leave it out")
    defaults = _family_values(options, options.d_model or recipe.d_model)
    from_recipe = {name: value for name, value in vars(recipe).items() if value is not None}
    return ModelSettings(**_fill(options, defaults | from_recipe | {"position": DEFAULT_POSITION}) | foreign)


def _family_values(options: ModelOptions, d_model: int) -> dict[str, Any]:
    """The default values of the fields of the family's config, at this width."""
    config = FAMILIES[options.family].config
    return {field.name: field.default for field in fields(config)} | config.sizes_at(d_model)


def model_config(config: RunConfig) -> CounterConfig:
    """The config of the counter that a run trains."""
    options: dict[str, Any] = vars(config.model).copy()
    family = FAMILIES[options.pop("family")]
    known = {field.name for field in fields(family.config)}
    return family.config(
        d_vocab=task_of(config).vocab.size,
        max_position=config.data.max_position,
        **{name: value for name, value in options.items() if name in known},
    )


def run_name(config: RunConfig) -> str:
    """A run's name, such as `mod10/ape-2L/seed0`. Every setting that differs from the preset is in it."""
    return f"{cell_name(config)}/seed{config.seed}"


def cell_name(config: RunConfig) -> str:
    """A run's name without its seed."""
    recipe, paper_task = preset_recipe(config), make_task(config.data.task)
    data, model = config.data, config.model
    parts = [architecture_name(model), f"{model.n_layers}L"]
    parts += [f"{model.d_model}d"] * (model.d_model != recipe.d_model)
    parts += [f"{model.n_heads}h"] * (model.n_heads not in (recipe.n_heads, None))
    parts += ["noncausal"] * (not model.causal)
    parts += [] if model.periods is None else [f"periods{'_'.join(f'{period:.9g}' for period in model.periods)}"]
    lengths = (data.train_length, data.ood_length)
    parts += [f"{lengths[0]}to{lengths[1]}"] * (lengths != (paper_task.train_length, paper_task.ood_length))
    parts += [f"{data.max_position}pids"] * (data.max_position != task_of(config).max_position)
    parts += [data.policy] * (data.policy != "shifted")
    parts += _unusual_values(config, recipe)
    parts += [config.preset] * (config.preset != "small")
    return f"{data.task}{'-bos' * data.bos}/{'-'.join(parts)}"


# How a run's name writes a value that differs from the recipe's or from the family's at this width. Layers, width and
# heads have places of their own.
LABELS = {
    "d_mlp": "mlp{}",
    "d_state": "state{}",
    "d_head": "head{}",
    "init_std": "init{:g}",
    "embed_std": "embed{:g}",
    "input_std": "input{:g}",
    "state_lr": "statelr{:g}",
    "state_decay": "statewd{:g}",
    "dropout": "dropout{:g}",
    "steps": "{}steps",
    "batch_size": "batch{}",
    "lr": "lr{:g}",
    "embed_lr": "embedlr{:g}",
    "warmup_steps": "warmup{}",
    "length_warmup": "grow{}",
    "schedule": "{}",
    "algorithm": "{}",
    "weight_decay": "wd{:g}",
    "embed_decay": "embedwd{:g}",
    "position_decay": "poswd{:g}",
    "beta2": "beta{:g}",
    "clip": "clip{:g}",
}


def _unusual_values(config: RunConfig, recipe: Recipe) -> list[str]:
    """The parts of a run's name for values that differ from the recipe's or the family's, such as `lr0.01`."""
    values = vars(config.model) | vars(config.optimiser)
    usual = _family_values(config.model, config.model.d_model) | vars(recipe)
    return [label.format(values[name]) for name, label in LABELS.items() if values[name] not in (None, usual.get(name))]


def describe(model: ModelSettings) -> str:
    """One line that describes a model, such as `ape, 2 layers, 64 wide, 4 heads`."""
    heads = "" if model.n_heads is None else f", {_plural(model.n_heads, 'head')}"
    waves = "" if model.periods is None else f", waves of {', '.join(f'{period:g}' for period in model.periods)}"
    return f"{architecture_name(model)}, {_plural(model.n_layers, 'layer')}, {model.d_model} wide{heads}{waves}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
