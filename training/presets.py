"""The one registry of presets: sizes and recipes for every task and architecture.

`small` is narrow where that suffices and wide where width buys generalisation; its values were found by
trying (README, "Results"). `paper` is the paper's own (section 3.2).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from models.config import CounterConfig
from models.errors import CountLensError, unknown
from models.families import FAMILIES
from training.config import ModelOptions, TrainConfig, architecture_name
from training.policies import get_policy
from training.tasks import Task, check_sound, make_task


@dataclass(frozen=True)
class Recipe:
    """A value for every option that a config may leave to its preset."""

    n_layers: int
    d_model: int
    n_heads: int
    init_std: float
    steps: int
    batch_size: int
    lr: float
    warmup_steps: int
    schedule: str
    weight_decay: float
    clip: float
    eval_every: int
    eval_rows: int


SMALL = Recipe(
    n_layers=2,
    d_model=64,
    n_heads=4,
    init_std=0.1,
    steps=2000,
    batch_size=16,
    lr=2e-3,
    warmup_steps=100,
    schedule="cosine",
    weight_decay=0.3,
    clip=10.0,
    eval_every=100,
    eval_rows=256,
)
PAPER = Recipe(
    n_layers=2,
    d_model=1024,
    n_heads=8,
    init_std=0.02,
    steps=312_500,
    batch_size=32,
    lr=1e-4,
    warmup_steps=3000,
    schedule="constant",
    weight_decay=0.01,
    clip=1.0,
    eval_every=30_000,
    eval_rows=1024,
)

# Where `small` differs from SMALL, by task (without its base), then by architecture ("*" for all).
FIRST_TOKEN = {"n_layers": 1, "d_model": 32, "n_heads": 1, "lr": 5e-3, "batch_size": 32}
SMALL_CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "first_tok_homogeneous": {"*": FIRST_TOKEN},
    "first_tok_heterogeneous": {"*": FIRST_TOKEN | {"d_model": 4}},
    "mod": {
        "*": {"steps": 1500},
        "sine": {"d_model": 256, "n_heads": 1, "steps": 2000, "lr": 1e-3, "init_std": 0.02},
        "spe": {"steps": 6000, "lr": 1e-3, "weight_decay": 0.01},
    },
}


def small_recipe(task: str, architecture: str) -> Recipe:
    """CPU minutes."""
    changes = SMALL_CHANGES.get(task.rstrip("0123456789"), {})
    return replace(SMALL, **(changes.get("*", {}) | changes.get(architecture, {})))


def paper_recipe(task: str, architecture: str) -> Recipe:
    """The paper's sizes, for a GPU."""
    if task.startswith("first_tok"):
        return replace(PAPER, n_layers=1, n_heads=1, d_model=32 if task.endswith("homogeneous") else 4)
    return PAPER


PRESETS: dict[str, Callable[[str, str], Recipe]] = {"small": small_recipe, "paper": paper_recipe}


def preset_recipe(config: TrainConfig) -> Recipe:
    """What the preset says for this task and architecture."""
    if config.preset not in PRESETS:
        raise unknown("preset", config.preset, PRESETS)
    if config.model.family not in FAMILIES:
        raise unknown("family", config.model.family, FAMILIES)
    return PRESETS[config.preset](config.data.task, architecture_name(config.model))


def resolve(config: TrainConfig) -> TrainConfig:
    """The same config with no None left, checked as a whole: what it describes can be trained."""
    recipe = preset_recipe(config)
    task = task_of(config)
    data = replace(
        config.data,
        train_length=task.train_length,
        ood_length=task.ood_length,
        max_position=config.data.max_position or _next_power_of_two(task.longest_row),
    )
    model = _fill(config.model, recipe)
    model = replace(model, d_mlp=model.d_mlp or 4 * (model.d_model or 0))
    resolved = replace(
        config,
        data=data,
        model=model,
        optimiser=_fill(config.optimiser, recipe),
        record=_fill(config.record, recipe),
    )
    check_sound(task, data.max_position or 0)
    get_policy(data.policy)
    for group, name in (("optimiser", "steps"), ("optimiser", "batch_size"), ("record", "eval_every")):
        value = getattr(getattr(resolved, group), name)
        if value < 1:
            raise CountLensError(f"{name}={value}: must be at least 1")
    model_config(resolved)
    return resolved


def task_of(config: TrainConfig) -> Task:
    """The task that a config describes."""
    data = config.data
    return make_task(data.task, bos=data.bos, train_length=data.train_length, ood_length=data.ood_length)


def model_config(config: TrainConfig) -> CounterConfig:
    """The counter that a resolved config describes."""
    options: dict[str, Any] = vars(config.model).copy()
    family = FAMILIES[options.pop("family")]
    known = {field.name for field in fields(family.config)}
    return family.config(
        d_vocab=task_of(config).vocab.size,
        max_position=config.data.max_position or 0,
        **{name: value for name, value in options.items() if name in known},
    )


def run_name(config: TrainConfig) -> str:
    """A name that says what the run is, as `mod10/ape-2L/seed0`: whatever is not the preset's own is in it."""
    resolved, recipe, paper_task = resolve(config), preset_recipe(config), make_task(config.data.task)
    data, model = resolved.data, resolved.model
    parts = [architecture_name(model), f"{model.n_layers}L"]
    parts += [f"{model.d_model}d"] * (model.d_model != recipe.d_model)
    parts += [f"{model.n_heads}h"] * (model.n_heads != recipe.n_heads)
    parts += ["noncausal"] * (not model.causal)
    lengths = (data.train_length, data.ood_length)
    parts += [f"{lengths[0]}to{lengths[1]}"] * (lengths != (paper_task.train_length, paper_task.ood_length))
    parts += [data.policy] * (data.policy != "shifted")
    parts += [config.preset] * (config.preset != "small")
    return f"{data.task}{'-bos' * data.bos}/{'-'.join(parts)}/seed{config.seed}"


def _fill(options: Any, recipe: Recipe) -> Any:
    """Options with the recipe's value wherever they have None."""
    missing = {
        field.name: getattr(recipe, field.name)
        for field in fields(options)
        if getattr(options, field.name) is None and hasattr(recipe, field.name)
    }
    return replace(options, **missing)


def _next_power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def describe(model: ModelOptions) -> str:
    """One line on a resolved model: ape, 2 layers, 64 wide, 4 heads."""
    return f"{architecture_name(model)}, {model.n_layers} layers, {model.d_model} wide, {model.n_heads} heads"
