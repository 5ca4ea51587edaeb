"""Which pictures show a probe's result: the one registry of figures, by probe."""

import plotly.graph_objects as go

Figures = dict[str, go.Figure]  # by caption
