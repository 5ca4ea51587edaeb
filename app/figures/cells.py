"""Colours of cells with text in them, which pictures and tables share. Needs no plotly."""

RIGHT_COLOUR, WRONG_COLOUR, UNSCORED_COLOUR = "#9ECAE9", "#F4A582", "#DDDDDD"  # of cells with text
ON_CELL = "#222222"  # of that text, on a light page and on a dark one
