"""Lines of a score table, made up."""

from dataclasses import replace

from training.paper.score_table import ScoreRow
from training.paper.tables import PaperCell


def row_of(cell: PaperCell, ind: float, ood: float, seed: int = 0, **changes: object) -> ScoreRow:
    """A run that answers a cell."""
    row = ScoreRow(
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
        policy="shifted",
        preset="small",
        seed=seed,
        ind=ind,
        ood=ood,
        last_ind=ind,
        last_ood=ood,
        best_step=100,
        steps=100,
        seconds=1.0,
    )
    return replace(row, **changes)  # type: ignore[arg-type]
