"""trec_eval through ir-measures and pytrec_eval, to compare our metrics with."""

from collections.abc import Mapping

import ir_measures
from ir_measures import AP, RR, P, R, Success, nDCG

Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, int]]

AT_K = {"recall": R, "precision": P, "hit_rate": Success, "map": AP, "ndcg": nDCG}


def by_query(run: Run, qrels: Qrels, k: int) -> dict[str, dict[str, float]]:
    """Return each judged query's metrics at k by our names; one without any result scores 0, as with `trec_eval -c`."""
    names = {measure @ k: f"{name}@{k}" for name, measure in AT_K.items()} | {RR: f"mrr@{k}"}
    found = {query: dict.fromkeys(names.values(), 0.0) for query in qrels}
    for metric in ir_measures.iter_calc(list(names), _plain(qrels), _plain(run)):
        value = float(metric.value)
        if metric.measure == RR and round(value * k, 9) < 1:  # trec_eval has no cut-off for it
            value = 0.0
        found[metric.query_id][names[metric.measure]] = value
    return found


def means(run: Run, qrels: Qrels, k: int) -> dict[str, float]:
    """Return the metrics at k by our names, averaged over the judged queries."""
    found = by_query(run, qrels, k)
    return {name: sum(q[name] for q in found.values()) / len(found) for name in next(iter(found.values()))}


def _plain(nested: Run | Qrels) -> dict[str, dict[str, float]]:
    return {query: dict(values) for query, values in nested.items()}
