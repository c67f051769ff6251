"""`make why-demo`: plant five faults in the sample handbook, and print why each question is lost."""

import logging
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter
from chunkproof.base.request import Deadline
from chunkproof.collection.lookup import point_id_for
from chunkproof.collection.reader import Reader
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model
from chunkproof.proof.backend import LocalBackend
from chunkproof.stores.store_port import Point
from chunkproof.why.causes import Cause
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question
from chunkproof_cli.loading import ChunkRecord, Loader
from chunkproof_cli.local.corpus import sample_chunks
from chunkproof_cli.output import print_line, print_table, print_title

from support.chunks import make_services
from support.sdk import sdk
from support.stores import MemoryStore

COLLECTION = "handbook"
DOCUMENTS = ("robotics-control", "robotics-calibration", "robotics-safety", "vectordb-hnsw")
MINUTE = 60_000
Fault = tuple[Cause, str, str, str, Callable[["Handbook"], None] | None, dict[str, Any]]


class Handbook:
    """The handbook in memory, to plant faults in."""

    def __init__(self) -> None:
        self.embedder, self.store = local_model(), MemoryStore()
        self.records = [ChunkRecord.parse(c) for c in sample_chunks() if c["document_id"] in DOCUMENTS]
        Loader(self.store, self.embedder, COLLECTION, None).load(self.records)

    def read(self, chunk_id: str) -> Point:
        return self.store.fetch(COLLECTION, [point_id_for(chunk_id)], Deadline(MINUTE), with_vector="")[0]

    def write(self, *points: Point) -> None:
        self.store.upsert(COLLECTION, points, "", Deadline(MINUTE))

    def embed(self, text: str) -> tuple[float, ...]:
        return tuple(self.embedder.embed([text], InputType.DOCUMENT, Deadline(MINUTE))[0])

    def make_stale(self) -> None:
        """The text stays, but the vector is another chunk's."""
        other = self.read("vectordb-hnsw-00").vector
        self.write(replace(self.read("robotics-control-06"), vector=other))

    def delete(self) -> None:
        sdk(self.store).delete(COLLECTION, [point_id_for("robotics-control-01")])

    def split(self) -> None:
        """The text is in two chunks, under other ids."""
        whole = self.read("robotics-control-09")
        sdk(self.store).delete(COLLECTION, [whole.id])
        text = whole.payload["text"]
        middle = text.index(". ", len(text) // 2) + 1
        for number, part in enumerate((text[:middle], text[middle:])):
            payload = {**whole.payload, "chunk_id": f"robotics-control-09.{number}", "text": part}
            self.write(Point(point_id_for(payload["chunk_id"]), payload, vector=self.embed(part)))

    def change(self) -> None:
        """The text is another one, and is embedded."""
        point = self.read("robotics-calibration-01")
        text = "This page has moved. Ask the maintainers for the new address."
        self.write(Point(point.id, {**point.payload, "text": text}, vector=self.embed(text)))


FAULTS: tuple[Fault, ...] = (
    (
        *(Cause.STALE_VECTOR, "its vector is another chunk's", "robotics-control-06"),
        "Why does an arm droop slightly although its controller works?",
        *(Handbook.make_stale, {}),
    ),
    (
        *(Cause.DELETED, "it is deleted", "robotics-control-01"),
        "My joint overshoots badly after the actuator was saturated for a while",
        *(Handbook.delete, {}),
    ),
    (
        *(Cause.SPLIT_DIFFERENTLY, "it is split into two chunks", "robotics-control-09"),
        "What makes an axis oscillate slowly about its goal position and never come to rest?",
        *(Handbook.split, {}),
    ),
    (
        *(Cause.TEXT_CHANGED, "its text is replaced", "robotics-calibration-01"),
        "How can I find where the wrist camera is mounted with respect to the robot?",
        *(Handbook.change, {}),
    ),
    (
        *(Cause.FILTERED_OUT, "the search filters by another document", "robotics-control-02"),
        "A step of the setpoint makes the derivative term spike, how is this avoided?",
        *(None, {"filters": {"document_id": "vectordb-hnsw"}}),
    ),
)


def demo() -> bool:
    """Plant, ask and print; return whether each planted fault was named."""
    handbook = Handbook()
    services = make_services(handbook.store, COLLECTION, handbook.embedder)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "before.snapshot"
        SnapshotWriter(file, Reader(services, COLLECTION), texts=True, vectors=True).write()
        for _, _, _, _, plant, _ in FAULTS:
            if plant is not None:
                plant(handbook)
        print_title("Planted")
        print_table(("chunk", "fault"), ((chunk, what) for _, what, chunk, *_ in FAULTS))
        explainer = Explainer(LocalBackend(services, lambda: Deadline(MINUTE)))
        right = 0
        for cause, _, chunk, question, _, request in FAULTS:
            asked = Question({"query_text": question, "top_k": 5, **request}, chunk, Snapshot(file))
            verdict = explainer.explain(asked).report.verdict
            is_right = verdict.causes == (cause,)
            right += is_right
            print_line()
            print_line(question, "bold")
            print_line(verdict.line, "green" if is_right else "bold red")
            print_line(f"Cost: {verdict.cost}", "dim")
    handbook.store.close()
    print_line()
    print_line(f"{right} of {len(FAULTS)} planted faults were named.")
    return right == len(FAULTS)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    sys.exit(0 if demo() else 1)
