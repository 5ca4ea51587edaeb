"""Which pictures show a probe's result: the one registry of figures, by probe."""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go

Figures = dict[str, go.Figure]  # by caption
