"""What a change costs, and the command that makes it."""

import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from chunkproof.deadline import Stopwatch
from chunkproof.models import SearchQuery
from chunkproof.models.filters import format_filters
from chunkproof.why.changes import Change
from chunkproof.why.replay import Replay
from chunkproof.why.report import Cause
from chunkproof.why.scenario import Outcome
from chunkproof.why.wording import Commands

# What is put right by writing the chunk again.
OF_A_CHUNK = frozenset(
    (Cause.STALE_VECTOR, Cause.OTHER_MODEL, Cause.TEXT_CHANGED, Cause.DELETED, Cause.SPLIT_DIFFERENTLY)
)
WRITTEN = OF_A_CHUNK | {Cause.FIELD_RENAMED, Cause.VALUE_CHANGED, Cause.DUPLICATES}
# What the search itself is changed for; the others change what is stored.
OF_THE_SEARCH = frozenset((Cause.FILTERED_OUT, Cause.BELOW_THRESHOLD, Cause.BEYOND_TOP_K, Cause.OTHER_LEG))

FIXED_COSTS: dict[Cause | None, str] = {
    Cause.FIELD_RENAMED: "one payload to write",
    Cause.VALUE_CHANGED: "one payload to write",
    Cause.ID_CHANGED: "the expectation to update",
    Cause.OTHER_LEG: "another ranking for every query: a suite shows what it costs",
    Cause.RERANKED: "the order of the reranking for every query",
    Cause.LEFT_OUT: "results that resemble each other more",
    Cause.UNREADABLE: "one payload to write, or CHUNKPROOF_PAYLOAD_MAP to set",
}


class Costs:
    """Estimates costs with the store: points that a filter leaves out, the time of an exact search."""

    def __init__(self, replay: Replay, query: SearchQuery, commands: Commands) -> None:
        self._replay = replay
        self._query = query
        self._commands = commands

    def estimate(self, change: Change, outcome: Outcome) -> str:
        """Say what a change costs."""
        if change.undoes in FIXED_COSTS:
            return FIXED_COSTS[change.undoes]
        if change.undoes is Cause.FILTERED_OUT:
            return self._cost_of_filter(change)
        if change.undoes is Cause.MISSED_BY_INDEX:
            return self._cost_of_index()
        if change.undoes is Cause.BELOW_THRESHOLD:
            ranked = self._replay.ranking(tuple(self._query.filters)).points
            more = sum((outcome.score or 0) <= p.score < self._query.similarity_threshold for p in ranked)
            return f"up to {more:,} more results pass at {_round_down(outcome.score or 0.0):g}"
        if change.undoes is Cause.BEYOND_TOP_K:
            return f"{(outcome.rank or 0) - self._query.top_k:,} more results in each response"
        if change.undoes is Cause.DUPLICATES:
            distinct = self._replay.distinct(tuple(self._query.filters), 0, frozenset())
            return f"{len(distinct.duplicates):,} near-duplicates to delete"
        if change.is_for_all:
            return f"{self._replay.context.points_count:,} texts to embed, or another model for queries"
        return "one text to embed and one point to write"

    def _cost_of_filter(self, change: Change) -> str:
        context = self._replay.context
        kept = tuple(c for n, c in enumerate(self._query.filters) if n != change.field)
        now = context.store.count(
            context.collection, self._replay.map(tuple(self._query.filters)), context.new_deadline()
        )
        then = context.store.count(context.collection, self._replay.map(kept), context.new_deadline())
        return f"{then - now:,} more chunks are searched ({then:,} instead of {now:,})"

    def _cost_of_index(self) -> str:
        times = []
        for exact in (False, True):
            watch = Stopwatch()
            where, space = self._replay.map(tuple(self._query.filters)), self._replay.spaces[0]
            self._replay.nearest(where, space.query, self._query.top_k, exact=exact)
            times.append(watch.ms())
        return f"a better index takes more memory; an exact search took {times[1]:.1f} ms instead of {times[0]:.1f}"

    def command(self, changes: Sequence[Change], outcome: Outcome, question: Any) -> str | None:
        """Return the command that makes the changes, or that writes down what has to be written to the store."""
        causes = {change.undoes for change in changes}
        if causes <= OF_THE_SEARCH:
            return self._search(changes, outcome)
        if causes == {Cause.MISSED_BY_INDEX}:
            return self._send("PATCH", "", shlex.quote('{"hnsw_config": {"m": 16, "ef_construct": 200}}'))
        if causes & {Cause.RERANKED, Cause.LEFT_OUT}:
            return None  # the search without the option that is named
        if not causes & WRITTEN:
            return self._commands.command("doctor")
        options = [f"--expect {shlex.quote(question.expected)}", f"-k {self._query.top_k}"]
        if self._query.mode:
            options.append(f"--mode {self._query.mode.value}")
        if self._query.similarity_threshold:
            options.append(f"--threshold {self._query.similarity_threshold:g}")
        options += self._commands.filter_options()
        if question.snapshot is not None:
            options.append(f"--snapshot {shlex.quote(str(question.snapshot.path))}")
        fix = f"--fix {self._fix_file}"
        return self._commands.command("why", " ".join([*options, fix]), self._query.query_text)

    def then(self, changes: Sequence[Change]) -> str | None:
        """Return the command that sends what was written down."""
        causes = {change.undoes for change in changes}
        if not causes & WRITTEN or any(change.is_for_all for change in changes):
            return None
        if self._is_served:
            return self._send("POST", "/points/batch?wait=true", f"@{self._fix_file}")
        return self._commands.command("load", "", self._fix_file) if causes & OF_A_CHUNK else None

    def _send(self, method: str, path: str, body: str) -> str:
        url = f"$QDRANT_URL/collections/{quote(self._commands.collection)}{path}"
        headers = '-H "content-type: application/json" -H "api-key: $QDRANT_API_KEY"'
        return f'curl -X {method} "{url}" {headers} -d {body}'

    @property
    def _is_served(self) -> bool:
        return self._replay.context.services.settings.qdrant_url is not None

    @property
    def _fix_file(self) -> str:
        return "fix.json" if self._is_served else "fix.jsonl"

    def _search(self, changes: Sequence[Change], outcome: Outcome) -> str:
        given: dict[str, Any] = {}
        dropped = {change.field for change in changes if change.undoes is Cause.FILTERED_OUT}
        if dropped:
            kept = () if None in dropped else [c for n, c in enumerate(self._query.filters) if n not in dropped]
            given["filters"] = format_filters(tuple(kept))
        for change in changes:
            if change.undoes is Cause.BELOW_THRESHOLD:
                given["threshold"] = _round_down(outcome.score or 0.0)
            if change.undoes is Cause.OTHER_LEG:
                given["mode"] = change.mode
            if change.undoes is Cause.BEYOND_TOP_K:
                given["top_k"] = outcome.rank or self._query.top_k
        return self._commands.search(**given)


def _round_down(score: float) -> float:
    """Return a threshold that this score meets, with two decimals."""
    return max(0.0, int(score * 100) / 100)
