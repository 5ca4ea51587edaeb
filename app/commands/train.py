"""`countlens train`"""

from pathlib import Path

from app.escape import say
from models.errors import CountLensError
from models.find import RUNS, find_checkpoint
from models.header import read_info
from training.config import TrainConfig
from training.presets import describe, resolve, run_name
from training.run.device import prepare
from training.run.folder import RunFolder
from training.run.interrupt import interrupted_by_sigterm
from training.run.loop import train


def run_training(config: TrainConfig, out: Path | None, resume: Path | None, like: str | None, progress: bool) -> None:
    """Trains a new run, or resumes one, and prints its scores and the path of its checkpoint."""
    if like is not None:
        if config != TrainConfig() or resume is not None:
            raise CountLensError("--like brings the checkpoint's own options: give it with --out alone")
        training = read_info(find_checkpoint(like)).training
        if not training:
            raise CountLensError(f"{like} does not say how it was trained")
        config = TrainConfig.from_dict(training)
    if resume is not None:
        if config != TrainConfig() or out is not None:
            raise CountLensError("--resume brings the run's own options: give it alone, or start a new run")
        run = RunFolder.open(resume)
        if run.finished:
            say(f"{resume} is finished already.")
    else:
        resolved = resolve(config)
        prepare(resolved.hardware)  # refuses an option that this machine lacks before there is a folder
        run = RunFolder.create(out or RUNS / run_name(resolved), resolved)
    settings = run.config()
    bos = " with bos" if settings.data.bos else ""
    say(f"{settings.data.task}{bos}: {describe(settings.model)}, seed {settings.seed} -> {run.path}")
    with interrupted_by_sigterm():
        scores = train(run, progress)
    print(f"  in distribution      {scores.ind:5.1f} %")
    print(f"  out of distribution  {scores.ood:5.1f} %")
    if "aux" in scores.summary:
        print(f"  auxiliary rows       {scores.summary['aux']:5.1f} %")
    say(f"  saved                {run.best}")
