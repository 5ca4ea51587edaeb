"""The results of `countlens study` that lie in the explorer's folders: claims as they came out, pictures, runs."""

from pathlib import Path

import streamlit as st

from app.escape import for_markdown, printable
from app.explorer import state
from app.explorer.call import Call, Given
from app.explorer.catalogue import Catalogue
from app.explorer.draw import draw_panel
from app.explorer.page import DrawnPanel, Panel
from app.figures.studies import panel_figure
from probes.studies import study
from probes.studies.registry import STUDIES
from probes.studies.result import SHIPPED_STUDIES, ResultFile, StudyResult, describe, list_results


def show(catalogue: Catalogue) -> dict[str, DrawnPanel]:
    """One of the results that are there; returns what is drawn by key."""
    found = {_name(one, folder): one for folder in catalogue.folders for one in list_results(folder)}
    if not found:
        st.info("There is no result here yet: `countlens study NAME` carries a study out, below `runs/studies`.")
        lines = [f"| `countlens study {name}` | {study.protocol.question} |" for name, study in STUDIES.items()]
        st.markdown("\n".join(["| command | question |", "|---|---|", *lines]))
        return {}
    chosen = found[state.select("study", "Study", list(found))]
    if chosen.result is None:
        st.error(catalogue.readable(chosen.error), icon=":material/broken_image:")
        return {}
    return _show_result(chosen.result, chosen.path)


def _name(found: ResultFile, folder: Path) -> str:
    return printable(found.path.parent.relative_to(folder.parent).as_posix())


def _show_result(result: StudyResult, path: Path) -> dict[str, DrawnPanel]:
    protocol = result.protocol
    st.subheader(f"{result.number}. {for_markdown(result.title)}", anchor=False)
    st.markdown(
        f"{for_markdown(protocol.question)}  \n:gray[Hypothesis, written before the runs: "
        f"{for_markdown(protocol.hypothesis)}]"
    )
    st.markdown(f"**{for_markdown(result.verdict.sentence)}**")
    st.dataframe(result.claims_frame(), hide_index=True)
    for judged in result.claims:
        st.caption(f"{for_markdown(judged.claim.statement)} {for_markdown(describe(judged))}.")
    drawn: dict[str, DrawnPanel] = {}
    for number, panel in enumerate(result.panels):
        key = f"study-{number}"
        read = _read_panel(panel, path, number)
        picture = Panel(panel.caption, Call(panel_figure, read), result.to_frame)
        draw_panel(picture, key, f"{result.study}-{number}")
        drawn[key] = DrawnPanel(picture.alt)
    if result.missing:
        st.caption(f"Not in the table: {for_markdown(', '.join(result.missing))}.")
    return drawn


def _read_panel(panel: study.Panel, path: Path, number: int) -> Given:
    """A picture's data, as an argument of calls. The code has the path of a shipped result, and no other path."""
    if path.is_relative_to(SHIPPED_STUDIES):
        where = f"SHIPPED_STUDIES / {path.relative_to(SHIPPED_STUDIES).as_posix()!r}"
        imports: tuple[str, ...] = ("from probes.studies.result import SHIPPED_STUDIES, read_result",)
    else:
        where = f"Path({path.name!r})"
        imports = ("from pathlib import Path", "from probes.studies.result import read_result")
    return Given("panel", panel, f"read_result({where}).panels[{number}]", imports)
