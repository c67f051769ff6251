"""What would have to be written to bring a chunk back: operations for Qdrant, or chunks for `chunkproof load`.

`why` itself writes nothing to the collection.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from chunkproof.clients.ports import Vector
from chunkproof.models.filters import AnyOf, Between, Condition
from chunkproof.retrieval.payload import PayloadMap
from chunkproof.why.changes import Change
from chunkproof.why.replay import Replay
from chunkproof.why.report import Cause, Fix
from chunkproof.why.scenario import Evaluator, Scenario, nest
from chunkproof.why.target import Target, TargetChunk

Operation = dict[str, Any]
OF_THE_VECTOR = frozenset((Cause.STALE_VECTOR, Cause.OTHER_MODEL))
OF_THE_TEXT = frozenset((Cause.TEXT_CHANGED, Cause.SPLIT_DIFFERENTLY, Cause.DELETED))


class FixWriter:
    """Writes down what some changes are, as writes to the store."""

    def __init__(self, replay: Replay, target: Target, evaluator: Evaluator) -> None:
        self._replay = replay
        self._context = replay.context
        self._target = target
        self._evaluator = evaluator

    def write(self, changes: Sequence[Change], scenario: Scenario) -> Fix | None:
        """Return the writes that make these changes; None where they change only the search, or every point."""
        if self._replay.spaces[scenario.space].is_anew or scenario.space:
            return None
        causes = {change.undoes for change in changes}
        operations: list[Operation] = []
        chunks: list[dict[str, Any]] = []
        for chunk in self._target.chunks:
            if causes & (OF_THE_VECTOR | OF_THE_TEXT) and self._is_affected(chunk, causes):
                operations += self._write_point(chunk, scenario)
                chunks.append(self._describe_chunk(chunk, scenario))
        for change in changes:
            operations += self._write_field(change, scenario)
        if Cause.DUPLICATES in causes:
            own = self._target.point_ids
            duplicates = self._replay.distinct(scenario.conditions, 0, own).duplicates
            operations.append({"delete": {"points": sorted(duplicates, key=str)}})
        return Fix(operations, chunks) if operations else None

    def _is_affected(self, chunk: TargetChunk, causes: set[Cause | None]) -> bool:
        if chunk.point is None:
            return bool(causes & OF_THE_TEXT) and chunk.former is not None
        return bool(causes & OF_THE_VECTOR) or chunk.has_changed_text

    def _write_point(self, chunk: TargetChunk, scenario: Scenario) -> Iterator[Operation]:
        vector = self._evaluator.vector_of(chunk, scenario)
        if vector is None:
            return
        if chunk.point is None and chunk.former is not None:
            payload = self._former_payload(chunk)
            point = {"id": chunk.former.point_id, "vector": self._name(vector), "payload": payload}
            yield {"upsert": {"points": [point]}}
        elif chunk.point is not None:
            yield {"update_vectors": {"points": [{"id": chunk.point.id, "vector": self._name(vector)}]}}
            if scenario.former_text and chunk.has_changed_text and chunk.former_text is not None:
                path = self._payloads.path_in("text", chunk.point.payload) or "text"
                yield self._set(chunk, path, chunk.former_text)

    def _former_payload(self, chunk: TargetChunk) -> dict[str, Any]:
        sample = self._context.services.sample(self._context.collection, self._context.new_deadline()).payloads
        path = self._payloads.usual_path("text", sample) or "text"
        fields = dict(chunk.former.payload) if chunk.former else {}
        return nest({**fields, **({path: chunk.former_text} if chunk.former_text is not None else {})})

    def _write_field(self, change: Change, scenario: Scenario) -> Iterator[Operation]:
        if change.field is None or change.undoes not in (Cause.FIELD_RENAMED, Cause.VALUE_CHANGED):
            return
        condition: Condition | None = change.condition
        if not isinstance(condition, AnyOf | Between):
            return
        for chunk in self._target.chunks:
            if chunk.point is None:
                continue
            value = (
                self._payloads.stated(change.other_field, chunk.point.payload)
                if change.other_field
                else chunk.former.payload.get(condition.field)
                if chunk.former
                else None
            )
            if value is not None:
                yield self._set(chunk, condition.field, value)

    def _set(self, chunk: TargetChunk, path: str, value: Any) -> Operation:
        """Set one field; of a nested one, the whole object is written again."""
        first, _, rest = path.partition(".")
        payload: dict[str, Any] = {path: value}
        point = chunk.point
        if point is not None and rest:
            outer = point.payload.get(first)
            payload = {first: {**(outer if isinstance(outer, dict) else {}), **nest({rest: value})}}
        return {"set_payload": {"payload": payload, "points": [point.id if point else None]}}

    def _describe_chunk(self, chunk: TargetChunk, scenario: Scenario) -> dict[str, Any]:
        """Return the chunk as a line of chunks.jsonl."""
        is_former = chunk.former_text is not None and (scenario.former_text or chunk.point is None)
        text = chunk.former_text if is_former else chunk.text
        payload = nest(chunk.former.payload) if chunk.point is None and chunk.former else {}
        payload = dict(chunk.point.payload) if chunk.point is not None else payload
        fields = {name: self._payloads.value(name, payload) for name in self._payloads.fields if name != "text"}
        known = {name: value for name, value in fields.items() if value is not None and name != "content_hash"}
        return {"chunk_id": chunk.name, "text": text, **known}

    @property
    def _payloads(self) -> PayloadMap:
        return self._context.payloads

    def _name(self, vector: Vector) -> Any:
        values = [float(value) for value in vector]
        return {self._context.config.name: values} if self._context.config.name else values
