"""CloudWatch's embedded metric format: a line of JSON on standard output, which CloudWatch turns into metrics.

Powertools' metrics check every name and unit anew in each request, in several times the time of writing them; here
they are literals, and tests check what is written against CloudWatch's specification.
"""

import sys
import time
from collections.abc import Iterable, Mapping

from pydantic_core import to_json

NAMESPACE = "Chunkproof"
SERVICE = "chunkproof"

Figure = tuple[str, str, float]
"""A metric's name, its unit in CloudWatch's words, and its value."""


def write(figures: Iterable[Figure], dimensions: Mapping[str, str]) -> None:
    """One set of metrics; the service is a dimension of every one."""
    # In one piece: a local gateway's threads write here too.
    sys.stdout.write(line(figures, dimensions) + "\n")


def line(figures: Iterable[Figure], dimensions: Mapping[str, str]) -> str:
    """The set as JSON."""
    values, metrics = {}, []
    for name, unit, value in figures:
        values[name] = [float(value)]
        metrics.append({"Name": name, "Unit": unit})
    places = {**dimensions, "service": SERVICE}
    directive = {"Namespace": NAMESPACE, "Dimensions": [list(places)], "Metrics": metrics}
    about = {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [directive]}
    return to_json({"_aws": about, **places, **values}).decode()
