"""Made-up rows of a score table."""

from dataclasses import replace

from training.paper.score_table import ScoreRow
from training.paper.tables import PaperCell

APE = ScoreRow(
    name="mod10/ape-2L/seed0",
    task="mod10",
    bos=False,
    architecture="ape",
    layers=2,
    width=64,
    heads=4,
    causal=True,
    train_length=50,
    ood_length=100,
    policy="shifted",
    preset="small",
    seed=0,
    ind=100.0,
    ood=98.3764,
    last_ind=100.0,
    last_ood=95.5,
    best_step=500,
    steps=1500,
    seconds=35.2,
    recipe="0123456789ab",
)


def row_of(cell: PaperCell, ind: float, ood: float, seed: int = 0, **changes: object) -> ScoreRow:
    """A run that fits a cell of the paper's tables."""
    row = replace(
        APE,
        name=f"{cell.task}/{cell.architecture}-{cell.layers}L/seed{seed}",
        task=cell.task,
        bos=cell.bos,
        architecture=cell.architecture,
        layers=cell.layers,
        width=cell.width or 64,
        heads=cell.heads or 4,
        causal=cell.causal,
        train_length=cell.train_length,
        ood_length=cell.ood_length,
        seed=seed,
        ind=ind,
        ood=ood,
        last_ind=ind,
        last_ood=ood,
    )
    return replace(row, **changes)  # type: ignore[arg-type]
