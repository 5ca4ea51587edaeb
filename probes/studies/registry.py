"""The one registry of studies."""

from models.errors import unknown
from probes.studies import predicting_ood, rope_periods, row_beginning
from probes.studies.study import Study

STUDIES: dict[str, Study] = {
    "predicting_ood": predicting_ood.STUDY,
    "rope_periods": rope_periods.STUDY,
    "row_beginning": row_beginning.STUDY,
}


def get_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return STUDIES[name]
