"""Training with and without bos, side by side and beside the paper."""

import pytest

from models import CheckpointInfo, CountLensError
from probes.bos_comparison import bos_comparison, pairs_by_bos


def info(task: str, position: str, bos: bool, ind: float, ood: float, layers: int = 2, seed: int = 0) -> CheckpointInfo:
    scores = {"ind": ind, "ood": ood}
    settings = {"name": task, "bos": bos}
    return CheckpointInfo("transformer", {"position": position, "n_layers": layers}, settings, seed=seed, scores=scores)


def test_training_with_bos_is_set_beside_training_without_and_beside_the_paper() -> None:
    infos = [
        info("mod10", "nope", False, 10.0, 11.7),
        info("mod10", "rope", True, 100.0, 35.0),
        info("mod10", "nope", True, 100.0, 9.0),
        info("mod10", "rope", False, 10.0, 11.7),
        info("mod10", "rope", False, 10.0, 11.7, seed=1),
    ]
    pairs = pairs_by_bos(infos)
    result = bos_comparison(pairs)
    assert [(pair.architecture, pair.agrees) for pair in result.pairs] == [("nope", True), ("rope", True)]
    assert result.verdict.agrees is True
    assert "mod10 nope-2L +90.0 IND, -2.7 OOD" in result.verdict.sentence
    line = result.to_frame().query("architecture == 'rope' and bos").iloc[0]
    assert (line["ind"], line["ood"], line["paper_ind"], line["paper_ood"]) == (100, 35, 100, 40.3)


def test_a_pair_that_bos_does_not_lift_speaks_against_the_paper() -> None:
    lame = (info("mod10", "nope", True, 15.0, 11.0), info("mod10", "nope", False, 10.0, 11.7))
    assert bos_comparison([lame]).verdict.agrees is False
    elsewhere = (info("mod7", "nope", True, 15.0, 11.0), info("mod7", "nope", False, 10.0, 11.7))
    assert bos_comparison([elsewhere]).verdict.agrees is None
    assert bos_comparison([elsewhere]).to_frame()["paper_ind"].isna().all()


def test_pairs_that_do_not_fit_are_refused() -> None:
    with_bos, without = info("mod10", "nope", True, 1.0, 1.0), info("mod10", "nope", False, 1.0, 1.0)
    with pytest.raises(CountLensError, match="no pairs"):
        bos_comparison([])
    with pytest.raises(CountLensError, match="in this order"):
        bos_comparison([(without, with_bos)])
    with pytest.raises(CountLensError, match="one setting"):
        bos_comparison([(with_bos, info("mod10", "rope", False, 1.0, 1.0))])
