"""The one registry of pages, by their path in the URL. The first is the one that opens."""

from app.explorer.page import Page
from training.paper.claims import CLAIMS

PAGES: dict[str, Page] = {
    "zoo": Page(
        "Zoo",
        "grid_view",
        "Every counter that there is, by task and architecture, with how often it is right; a click opens one.",
        "No architecture counts inductively in every form; which positional embedding helps depends on the form.",
        "zoo",
        of_counter=False,
    ),
    "paper": Page(
        "Paper",
        "menu_book",
        "The paper's claims in its order: our numbers beside its own, whether the claim holds, and where to see it.",
        "Language models need inductive biases to count inductively; which ones, it says claim by claim.",
        "paper",
        of_counter=False,
    ),
    "behaviour": Page(
        "Behaviour",
        "pin",
        "What the counter answers to a row, token by token, and how often it is right at each position.",
        "Every scheme fits some forms of counting; few go on past the lengths seen in training.",
        "behaviour",
    ),
    "first-token": Page(
        "First token",
        "first_page",
        "How well a linear probe reads “I am the first token”, or the row's shift, at each place in the counter.",
        CLAIMS["first token"].sentence,
        "first_token",
    ),
    "pid-pca": Page(
        "Position PCA",
        "scatter_plot",
        "Principal components of equal tokens at one place in the counter, coloured by their position id modulo m.",
        CLAIMS["clusters"].sentence,
        "pid_pca",
    ),
    "attention": Page(
        "Attention",
        "grid_on",
        "Where each token of a row looks, head by head, and how far positions move the scores of equal token pairs.",
        CLAIMS["attention"].sentence,
        "attention",
    ),
    "bos-ablation": Page(
        "BOS ablation",
        "content_cut",
        "How often the counter is right at each position once chosen heads can no longer read its first token.",
        CLAIMS["bos"].sentence,
        "bos_ablation",
    ),
    "patching": Page(
        "Patching",
        "conversion_path",
        "What an activation of one row does in another: by layer, position and head, and token by token.",
        "Modular counters subtract the first token's position from their own, modulo 10; it argues so from pictures.",
        "patching",
    ),
    "mechanism": Page(
        "Mechanism",
        "account_tree",
        "Which stated algorithm predicts the answers when one of its variables is swapped between rows, and the swaps "
        "themselves, token by token.",
        "Modular counters subtract the first token's position from their own; selective ones take k/n by 1/n. Pictures "
        "suggest it; no swap was made.",
        "mechanism",
    ),
    "states": Page(
        "States",
        "route",
        "Where the state of a recurrent counter goes from token to token, and what happens when it is exchanged.",
        "RNN and LSTM go on counting where most transformers stop; how their states do it, it does not say.",
        "states",
        recurrent_only=True,
    ),
    "studies": Page(
        "Studies",
        "science",
        "Questions over many runs, with a protocol written before the first of them: claims, verdicts, pictures.",
        "It has none of these studies: they follow up what it leaves open.",
        "studies",
        of_counter=False,
    ),
    "training": Page(
        "Training",
        "trending_up",
        "How the counter learned, over the snapshots of its training. The step chosen in the sidebar is marked, and "
        "holds on every page.",
        "It has no such analysis.",
        "training",
    ),
}
