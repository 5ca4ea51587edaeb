"""Every result has a label and a number, whichever probe it comes from."""

from dataclasses import dataclass

import pandas as pd
import pytest
from shipped import shipped

from probes.registry import PROBES, load_subject
from probes.result import NotApplicable, Result, Verdict

ROUNDING = 1e-9


@dataclass(frozen=True)
class Plain(Result):
    """A result that states no headline of its own."""

    agrees: bool | None

    @property
    def verdict(self) -> Verdict:
        return Verdict("It is so.", "if not", self.agrees)

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame()


def test_a_result_without_a_headline_says_whether_the_paper_is_right() -> None:
    labels = [Plain(agrees).headline.label for agrees in (True, False, None)]
    assert labels == ["as the paper says", "not as the paper says", "no claim to compare with"]


@pytest.mark.parametrize("name", [name for name in PROBES if name != "dynamics"])
def test_every_probe_has_a_label_without_numbers_that_vary(name: str) -> None:
    """Of a small counter that each probe can be asked; intervals hold the number."""
    for counter in ("first_tok_homogeneous/ape-1L-4d", "mod10/rnn-1L"):
        try:
            found = PROBES[name].run(load_subject(shipped(counter)), 0).headline
        except NotApplicable:
            continue
        assert found.label
        assert "%" not in found.label
        assert not found.low > found.value + ROUNDING
        assert not found.high < found.value - ROUNDING
