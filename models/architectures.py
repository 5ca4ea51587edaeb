"""The architectures, as the paper's tables name them: a transformer by its positional scheme, the rest by family."""

from dataclasses import dataclass

from models.errors import unknown
from models.families import FAMILIES, TRANSFORMER
from models.schemes import SCHEMES


@dataclass(frozen=True)
class Architecture:
    """A family and, for a transformer, a positional scheme; and how figures draw it."""

    family: str
    position: str | None
    colour: str
    dash: str = "solid"


def architectures() -> dict[str, Architecture]:
    """Every architecture by its name, in the order in which tables show them."""
    schemes = {name: Architecture(TRANSFORMER, name, scheme.colour, scheme.dash) for name, scheme in SCHEMES.items()}
    others = {name: Architecture(name, None, family.colour) for name, family in FAMILIES.items() if name != TRANSFORMER}
    return schemes | others


def find_architecture(name: object) -> Architecture:
    """The architecture of this name.

    >>> find_architecture("rope").family, find_architecture("lstm").position
    ('transformer', None)
    """
    known = architectures()
    if not isinstance(name, str) or name not in known:
        raise unknown("architecture", name, known)
    return known[name]
