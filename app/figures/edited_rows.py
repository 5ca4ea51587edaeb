"""Answers before and after an edit, token by token: a patched activation, a transplanted memory, moved positions."""

import plotly.graph_objects as go

from app.figures.strip import ACROSS, Lane, strip_figure
from probes.mechanism.moved_row import MovedRow
from probes.mechanism.transplants import Transplant
from probes.patching.patched_row import PatchedRow

BEFORE = 4  # tokens before a transplant that are shown


def patched_row_figure(result: PatchedRow) -> go.Figure:
    """The row, what is right, and answers without and with the patch; where labels differ, the partner's too."""
    lanes = [
        Lane("tokens", result.tokens),
        Lane("right", result.labels),
        Lane("answers", result.answers, result.labels),
        Lane("patched", result.patched, result.labels),
    ]
    if result.other_labels != result.labels:
        lanes.append(Lane("partner's right", result.other_labels))
    columns = range(len(result.tokens))
    alt = f"Row of {len(columns)} tokens with its answers before and after the patch. {result.verdict.sentence}"
    return strip_figure(lanes, alt, columns, result.cell.get("pos"), first=0)


def transplanted_row_figure(result: Transplant) -> go.Figure:
    """The tokens around a transplant: answers without it, with it, and what they are if the memory is the count."""
    start = max(0, min(result.column - BEFORE, len(result.tokens) - ACROSS))
    columns = range(start, min(start + ACROSS, len(result.tokens)))
    lanes = [
        Lane("tokens", result.tokens),
        Lane("right", result.labels),
        Lane("answers", result.answers, result.labels),
        Lane("predicted", result.predicted),
        Lane("transplanted", result.transplanted, result.predicted),
    ]
    alt = f"Tokens {columns[0] + 1} to {columns[-1] + 1} with answers before and after a transplant of the memory. "
    return strip_figure(lanes, alt + result.verdict.sentence, columns, result.column)


def moved_row_figure(result: MovedRow) -> go.Figure:
    """The row with its position ids, moved ones marked; answers before and after, and those of the paper's equation."""
    before, after = result.before, result.after
    stay = tuple(map(str, before.position_ids))
    lanes = [
        Lane("tokens", before.tokens),
        Lane("position ids", tuple(map(str, after.position_ids)), stay),
        Lane("right", before.labels),
        Lane("before", before.answers, before.labels),
        Lane("after", after.answers, before.labels),
    ]
    if result.paper is not None:
        lanes.append(Lane("own - first id", result.paper, before.labels))
    alt = f"Row of {len(before.tokens)} tokens with its answers before and after position ids are moved. "
    return strip_figure(lanes, alt + result.verdict.sentence, range(len(before.tokens)))
