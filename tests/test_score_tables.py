"""The tables of scores in the docs are those that their script writes."""

from types import ModuleType

import pytest
from docs_scripts import DOCS, load_script


@pytest.fixture
def script() -> ModuleType:
    return load_script("tables")


def test_the_tables_in_the_docs_have_the_scores_of_today(script: ModuleType) -> None:
    page = (DOCS / "results.md").read_text()
    assert script.with_tables(page) == page, "run python docs/tables.py"


def test_a_page_without_a_place_for_a_table_is_noticed(script: ModuleType) -> None:
    with pytest.raises(AssertionError, match="no place for the table counting_results"):
        script.with_tables("# Results\n")
