"""The one registry of pages, by their path in the URL. The first is the one that opens."""

from app.explorer.page import Page

PAGES: dict[str, Page] = {
    "zoo": Page(
        "Zoo",
        "grid_view",
        "Every counter that there is, by task and architecture, with how often it is right; a click opens one.",
        "No architecture counts inductively in every form; which positional embedding helps depends on the form.",
        "zoo",
        of_counter=False,
    ),
    "behaviour": Page(
        "Behaviour",
        "pin",
        "What the counter answers to a row, token by token, and how often it is right at each position.",
        "Every scheme fits some forms of counting; few go on past the lengths seen in training.",
        "behaviour",
    ),
    "patching": Page(
        "Patching",
        "conversion_path",
        "What an activation of one row does in another: by layer, position and head, and token by token.",
        "Modular counters subtract the first token's position from their own, modulo 10; it argues so from pictures.",
        "patching",
    ),
    "states": Page(
        "States",
        "route",
        "Where the state of a recurrent counter goes from token to token, and what happens when it is exchanged.",
        "RNN and LSTM go on counting where most transformers stop; how their states do it, it does not say.",
        "states",
    ),
    "training": Page(
        "Training",
        "trending_up",
        "How the counter came about, over the snapshots of its training. The step chosen in the sidebar is marked, and "
        "holds on every page.",
        "It has no such analysis.",
        "training",
    ),
}
