"""Names of shipped counters, whichever seed of them is shipped."""

from models.find import SHIPPED


def shipped(cell: str) -> str:
    """The counter that is shipped for a cell: `mod10/ape-2L` is `mod10/ape-2L/seed2` if that seed is the best."""
    (folder,) = (SHIPPED / cell).glob("seed*")
    return f"{cell}/{folder.name}"
