"""Words that reports of every kind share."""


def plural(count: int, noun: str) -> str:
    """Write `1 line` or `2 lines`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def and_more(total: int, listed: int) -> str | None:
    """Write how many of a list are left out; None when all are listed."""
    return f"… and {total - listed:,} more" if total > listed else None
