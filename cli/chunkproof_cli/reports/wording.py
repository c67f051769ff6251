"""Words that reports of every kind share."""

from chunkproof.retrieval.repeated import RepeatedResults


def plural(count: int, noun: str) -> str:
    """Write `1 line` or `2 lines`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def short_version(version: str) -> str:
    """Shorten the version of a published collection, as `chunkproof publish --list` shows it."""
    return version[:12]


def and_more(total: int, listed: int) -> str | None:
    """Write how many of a list are left out; None when all are listed."""
    return f"… and {total - listed:,} more" if total > listed else None


def describe_repeated(found: RepeatedResults) -> str:
    """Say what repeated texts take of the results of a suite's queries."""
    return (
        f"{found.repeated:,} of {found.results:,} results ({found.share:.1%}) repeat the text of a better one; "
        f"{found.queries_affected:,} of {found.queries:,} queries are affected, the worst by {found.worst:.0%}"
    )
