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
}
