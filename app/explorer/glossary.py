"""The words that the pages use, for whoever has not read the paper. The README's table has some of them, verbatim."""

import re

GLOSSARY: dict[str, str] = {
    "counter": (
        "a trained model that counts; `mod10/ape-2L/seed0` is a task, an architecture with its layers, and a seed"
    ),
    "IND, OOD": (
        "accuracy in distribution (rows as long as in training), and at positions beyond the longest training row"
    ),
    "PID": "position id: what a positional scheme sees; a row's tokens have consecutive PIDs",
    "shift": "the PID of a row's first token; drawn at random for each row, in training and in tests",
    "bos": "a first token of its own, which some architectures need to find the beginning",
    "site": "a place in a model whose activations can be read or exchanged, such as `blocks.1.hook_resid_post`",
    "probe": "an analysis: a counter in, numbers with a null and a verdict out",
    "row": "the tokens that a counter reads at once, such as `a a a a`; it answers at each of them",
    "seed": (
        "the number that a training's random choices start from; another seed gives another counter of the same kind"
    ),
    "scheme": "how a transformer is told positions: nope, sine, ape, rope or spe",
    "nope": "no positional embedding: only the causal mask tells tokens apart",
    "sine": "fixed sine waves of the position, added to each token",
    "ape": "a learned vector for each position, added to each token",
    "rope": "queries and keys are turned by their position, so that attention sees distances",
    "spe": "one column of each token's vector holds its position as a number",
    "recurrent": "rnn, lstm, s4, mamba, rwkv6: models that read token by token and keep a state",
    "task": (
        "a form of counting: mod10 counts modulo 10, selective counts each kind of token by itself (selective_mod4 "
        "modulo 4), shifted_start goes on from a given number, helper has a second token that is counted further "
        "(helper_shifted from a given number), vanilla_succession has the list of numbers among its training rows, "
        "first_tok_homogeneous and first_tok_heterogeneous only ask which token is the first, of equal tokens and of "
        "different ones"
    ),
    "layer, head": "a transformer is a stack of layers; in each, several heads look from every token at earlier ones",
    "activation": "the numbers that a model computes at one site for one token",
    "patching": "an activation of one row is put into another row, to see which answers it moves",
    "principal components": "the directions in which activations differ most, so that they can be drawn",
    "null": "what the number would be if there were nothing to find: shuffled, untrained, or random directions",
    "interval": "what a number lies between in 95 of 100 cases when the rows are drawn again",
    "mechanism": (
        "a stated algorithm; it is tested by swapping one of its variables between rows and predicting the answers"
    ),
    "anchor": "the tokens that tell a counter where its row begins",
    "snapshot": "a counter as it was at one step of its training",
}

# What sentences of probes abbreviate, in words that need no glossary; the first that fits counts.
IN_PLAIN_WORDS: dict[str, str] = {
    r"(?:IND|ind) accuracy|\bind\b": "accuracy at trained lengths",
    r"(?:OOD|ood) accuracy|\bood\b": "accuracy in longer rows",
    r"\bIND\b": "at trained lengths",
    r"\bOOD\b": "in longer rows",
    r"\bPIDs\b": "position ids",
    r"\bPID\b": "position id",
}


def in_plain_words(text: str) -> str:
    """The text without abbreviations.

    >>> in_plain_words("Fits: IND 99.5 %, OOD 9.0 %; by own PID")
    'Fits: at trained lengths 99.5 %, in longer rows 9.0 %; by own position id'
    """
    for short, plain in IN_PLAIN_WORDS.items():
        text = re.sub(short, plain, text)
    return text


def glossary_table() -> str:
    """All words as a table in markdown."""
    lines = [f"| **{word}** | {meaning} |" for word, meaning in GLOSSARY.items()]
    return "\n".join(["| word | meaning |", "|---|---|", *lines])
