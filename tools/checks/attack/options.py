"""Searches at random that the API accepts: every mode and option, in the combinations that are allowed."""

from random import Random
from typing import Any

QUESTIONS = ("belongs to a", "pumps and water", "é " * 300, "漢字", "the and of", "&amp; <b>", "b")
FUSIONS = ({"method": "rrf", "k": 1}, {"method": "dbsf"}, {"weights": {"dense": 0.0, "text": 1_000.0}})
GROUPS = ("document_id", "position", "tenant", "metadata.a", "text")
EXTRAS: dict[str, tuple[Any, ...]] = {
    "neighbours": (1, 3),
    "explain": (True,),
    "with_payload": (True,),
    "with_vectors": (True,),
    "include_metadata": (False,),
    "top_k": (1, 20, 100),
    "similarity_threshold": (0.0, 0.3),
}


def make_search(rng: Random, filters: dict[str, Any], cursors: tuple[str, ...] = ("start",)) -> dict[str, Any]:
    """Make the body of a search."""
    mode = rng.choice(("dense", "dense", "text", "hybrid"))
    body: dict[str, Any] = {"query_text": rng.choice(QUESTIONS), "mode": mode, "filters": filters}
    if rng.random() < 0.4:
        body["highlight"] = True
    if mode == "hybrid" and rng.random() < 0.7:
        body["fusion"] = rng.choice(FUSIONS)
    if mode != "text" and rng.random() < 0.2:
        body["params"] = rng.choice(({"exact": True}, {"hnsw_ef": 1}))
    kind = rng.randrange(4)
    if kind == 0:
        body |= {"group_by": rng.choice(GROUPS), "group_size": rng.choice((1, 3))}
    elif kind == 1 and mode == "dense":
        body["diversity"] = rng.choice((0.0, 0.5, 1.0))
    elif kind == 2:
        body["cursor"] = rng.choice(cursors)
    return body | {name: rng.choice(EXTRAS[name]) for name in rng.sample(list(EXTRAS), rng.randrange(4))}
