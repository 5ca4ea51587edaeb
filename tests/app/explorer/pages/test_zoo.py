"""The zoo as a page: what is near to the paper, by the scores of all seeds."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from models.find import SHIPPED
from training.paper.comparison import compare
from training.paper.score_table import read_scores
from training.paper.summary import summary_frame


def test_it_says_how_near_all_seeds_are_to_the_paper(open_page: Callable[..., Any]) -> None:
    app = open_page("zoo", near="true")
    (shown,) = app.dataframe
    expected = summary_frame(compare(read_scores(SHIPPED / "scores.csv"))).round(2)
    pd.testing.assert_frame_equal(shown.value.reset_index(drop=True), expected, check_dtype=False)
    assert not open_page("zoo").dataframe
