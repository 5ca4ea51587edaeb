"""One look for all figures: a colour-blind-safe palette (Okabe & Ito) with one colour an architecture."""

ARCHITECTURE_COLOURS = {
    "nope": "#000000",
    "sine": "#0072B2",
    "ape": "#009E73",
    "rope": "#D55E00",
    "spe": "#CC79A7",
}
ARCHITECTURE_DASHES = {"rope": "dot"}  # it often lies exactly on nope
OTHER_COLOUR = "#56B4E9"
FAINT = "rgba(128, 128, 128, 0.12)"
