"""Hand-built counters of a task: `models.handbuilt` knows only ids, this binds them to `make_task("mod10", bos=True)`.

`save_counter(path, counter, counter.info)` keeps one with what it says of itself.
"""

from dataclasses import replace

import torch

from models.counter import Counter
from models.errors import CountLensError, unknown
from models.families import config_to_dict, family_of
from models.handbuilt import MECHANISMS, VOTERS, first_position_counter, mean_position_counter, voted_position_counter
from models.header import CheckpointInfo
from models.transformer import Transformer
from training.tasks import BOS, Task, task_settings

POLICY = "shifted"  # exact under every shift, not under gaps between PIDs


def handbuilt_counter(mechanism: str, task: Task, max_position: int = 128) -> Transformer:
    """A counter of a modular task with weights set by formula; its `info` says so, and which mechanism it has."""
    if mechanism not in MECHANISMS:
        raise unknown("mechanism", mechanism, MECHANISMS)
    if task.period is None:
        raise CountLensError(f"{task.name} is not modular counting: hand-built counters are of mod2, mod3, ..., mod10")
    # The label at each distance from the row's first token, modulo the base.
    labels = task.answer_ids(torch.arange(task.period) - task.prefix).tolist()
    if mechanism == "mean_position":
        counter = mean_position_counter(labels, task.vocab.size, max_position)
    elif not task.bos:
        raise CountLensError(
            f"{mechanism} finds the first token by its being bos, but rows of this {task.name} have none: "
            f"make_task({task.name!r}, bos=True)"
        )
    elif mechanism in VOTERS:
        bos = task.vocab.id(BOS)
        counter = voted_position_counter(labels, bos, task.vocab.size, VOTERS[mechanism], max_position)
    else:
        counter = first_position_counter(labels, task.vocab.id(BOS), task.vocab.size, max_position)
    counter.info = replace(
        handbuilt_info(counter, task, POLICY, mechanism, MECHANISMS[mechanism]),
        transformer_lens=counter.transformer_lens_config(),
    )
    return counter


def handbuilt_info(counter: Counter, task: Task, policy: str, mechanism: str, meaning: str) -> CheckpointInfo:
    """What a hand-built counter says of itself, with the name of its mechanism and what that does."""
    return CheckpointInfo(
        family=family_of(counter.cfg),
        model=config_to_dict(counter.cfg),
        task=task_settings(task),
        policy=policy,
        training={"handbuilt": mechanism, "note": f"not trained, built by hand: {meaning}"},
    )
