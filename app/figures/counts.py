"""How often each kind occurs in the rows of a selective task (paper, appendix: distribution of counts)."""

from collections.abc import Mapping

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.figures.style import SPLIT_COLOURS, dress
from training.tasks import Split

SPLIT_TITLES: dict[Split, str] = {"train": "training rows", "ood": "OOD rows"}


def counts_figure(shares: Mapping[str, Mapping[Split, list[float]]]) -> go.Figure:
    """Bars of the percent of rows in which a kind occurs 0, 1, 2, ... times: one panel per task and split."""
    figure = make_subplots(
        rows=len(shares),
        cols=len(SPLIT_TITLES),
        subplot_titles=[f"{task}, {title}" for task in shares for title in SPLIT_TITLES.values()],
        vertical_spacing=0.2 / max(1, len(shares) - 1),
    )
    for row, by_split in enumerate(shares.values(), 1):
        for column, split in enumerate(SPLIT_TITLES, 1):
            colour = SPLIT_COLOURS["ood" if split == "ood" else "ind"]
            figure.add_bar(y=by_split[split], marker_color=colour, row=row, col=column, showlegend=False)
            figure.update_yaxes(title="% of rows" if column == 1 else None, row=row, col=column)
    figure.update_xaxes(title="occurrences of a kind in a row", row=len(shares))
    means = [
        f"{task} {sum(count * share for count, share in enumerate(by_split[split])) / 100:.1f} in {title}"
        for task, by_split in shares.items()
        for split, title in SPLIT_TITLES.items()
    ]
    alt = f"Bars of how often a kind of token occurs in a row. On average: {'; '.join(means)}."
    return dress(figure, alt, "How often a kind of token occurs in a row", height=120 + 260 * len(shares))
