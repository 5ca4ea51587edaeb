"""docs/findings says what the protocols and the results say."""

import importlib.util
from pathlib import Path

import pytest

from probes.studies.registry import STUDIES
from probes.studies.result import read_result

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_is_what_the_script_writes(name: str) -> None:
    spec = importlib.util.spec_from_file_location("findings", ROOT / "docs" / "findings.py")
    assert spec
    assert spec.loader
    findings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(findings)
    study, path = STUDIES[name], findings.HERE / f"{name}.json"
    result = read_result(path) if path.is_file() else None
    text = findings.page(name, study.title, study.protocol, study.number, result)
    assert (findings.HERE / f"{study.number}.md").read_text() == text, "run python docs/findings.py"
    assert len(text.split()) < 1300  # two pages
