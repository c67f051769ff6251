"""What a sample says about the whole: an upper bound of the share of faults."""

from math import exp, lgamma, log, log1p

CONFIDENCE = 0.95
_STEPS = 60


def upper_bound(faults: int, drawn: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest share of faults that is compatible with the sample (Clopper and Pearson, one-sided).

    Exact for an infinite collection, and conservative for any other. Without a fault in n chunks it is
    1 - 0.05 ** (1/n), close to 3/n.
    """
    if faults >= drawn:
        return 1.0
    low, high = faults / drawn, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _probability_of_at_most(faults, drawn, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _probability_of_at_most(faults: int, drawn: int, share: float) -> float:
    """Return the probability of so few faults in the sample, if this share of all chunks is faulty."""
    if share >= 1.0:
        return 0.0
    return sum(
        exp(
            lgamma(drawn + 1)
            - lgamma(k + 1)
            - lgamma(drawn - k + 1)
            + (k * log(share) if k else 0.0)
            + (drawn - k) * log1p(-share)
        )
        for k in range(faults + 1)
    )
