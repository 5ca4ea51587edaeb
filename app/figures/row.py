"""One row, token by token: what was read, what is right, and what the counter says."""

import plotly.graph_objects as go

from app.escape import for_plotly
from app.figures.strip import judged_cells
from app.figures.style import dress
from probes.reading.answers import Answers

ACROSS = 10  # tokens per line: those of a column are equal modulo 10
LINE_HEIGHT = 50  # pixels


def row_figure(answers: Answers) -> go.Figure:
    """The row in lines of cells; each cell has the token, what is right and what is said, and a colour and a sign."""
    places = range(len(answers.tokens))
    lines = [places[start : start + ACROSS] for start in places[::ACROSS]]
    shades = [[_shade(answers, at) for at in line] for line in lines]
    texts = [[_text(answers, at) for at in line] for line in lines]
    hovers = [[_hover(answers, at) for at in line] for line in lines]
    hover = {"customdata": hovers, "hovertemplate": "%{customdata}<extra></extra>"}
    names = {"y": [str(line[0] + 1) for line in lines], "x": [str(place + 1) for place in lines[0]]}
    figure = go.Figure(judged_cells(shades, texts, ygap=4, **hover, **names))
    figure.update_xaxes(type="category", showgrid=False, visible=False)
    figure.update_yaxes(type="category", showgrid=False, autorange="reversed", title="position")
    alt = f"Row of {len(answers.tokens)} tokens with what is right and what is said at each. {answers.verdict.sentence}"
    return dress(
        figure, alt, height=LINE_HEIGHT * len(lines) + 30, margin={"l": 60, "r": 10, "t": 10, "b": 20}, font_size=12
    )


def _shade(answers: Answers, at: int) -> int:
    return {None: 0, True: 1, False: -1}[answers.right[at]]


def _text(answers: Answers, at: int) -> str:
    token, said = (for_plotly(text) for text in (answers.tokens[at], answers.answers[at]))
    if answers.right[at] is None:
        return f"{token}<br>·"
    if answers.right[at]:
        return f"{token}<br>{said} ✓"
    return f"{token}<br>{said}<br>≠ {answers.labels[at]}"


def _hover(answers: Answers, at: int) -> str:
    said = for_plotly(f"says {answers.answers[at]} with {100 * answers.probability[at]:.1f} %")
    where = f"position {at + 1}, position id {answers.position_ids[at]}"
    label, likely = answers.labels[at], answers.label_probability[at]
    if label is None or likely is None:
        return f"{where}<br>{said}; not scored"
    return f"{where}<br>{said}<br>right is {label}, with {100 * likely:.1f} %"
