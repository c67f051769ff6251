"""What an attack found."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """How many attempts of one kind were made, how many the product withstood, and the slowest in seconds."""

    kind: str
    tried: int
    held: int
    slowest: float
    details: tuple[str, ...] = ()
