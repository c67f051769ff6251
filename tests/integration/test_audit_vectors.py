"""The cause of a wrong vector is named only where a check shows it."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from chunkproof.audit.findings import Finding, Kind
from chunkproof.audit.ledger import AuditPlan, load_progress
from chunkproof.audit.manifest_file import Entry
from chunkproof.base.errors import InvalidParameterError, NotConfiguredError
from chunkproof.base.request import Deadline
from chunkproof.embedders.embedder_port import InputType
from chunkproof.embedders.local_model import local_model
from chunkproof.stores.store_port import Point, Vector, WritableStore
from chunkproof_cli.local.corpus import sample_chunks

from support.audit_faults import Asymmetric, unrelated
from support.audits import resume, run_audit, services_on
from support.cohere_server import hashed
from support.handbook import minilm
from support.wordllama_model import WORDLLAMA

TEXTS = [chunk["text"] for chunk in sample_chunks()][:20]
MODEL = Asymmetric(local_model())


def audit_vectors(
    store: WritableStore,
    collection: str,
    folder: Path,
    vectors: dict[int, Vector],
    *,
    texts: dict[int, str] | None = None,
    model: str | None = None,
    all_texts: Sequence[str] = TEXTS,
) -> dict[str, Finding]:
    """Audit chunks of the handbook, some with other vectors or texts; return the findings on vectors."""
    store.create(collection, 384, Deadline(60_000))
    points = [
        Point(
            number,
            {"chunk_id": f"c{number}", "text": (texts or {}).get(number, text), "embedding_model": model},
            vector=tuple(vectors[number] if number in vectors else minilm(text)),
        )
        for number, text in enumerate(all_texts)
    ]
    store.upsert(collection, points, "", Deadline(60_000))
    lines = [Entry(f"c{number}", text).to_line() for number, text in enumerate(all_texts)]
    report = run_audit(lines, folder, services_on(store, MODEL), collection, AuditPlan(vectors=0))
    assert report.vectors is not None
    assert report.vectors.checked == len(all_texts) == sum(report.vectors.kinds.values())
    state = load_progress(folder)
    assert state is not None
    assert state.vectors_checked == len(all_texts)  # what the progress bar shows
    return {f.chunk_id: f for f in report.findings if f.cosine is not None or "vector" in f.kind}


def test_each_cause_is_named_with_the_cosine(memory_store: WritableStore, collection: str, tmp_path: Path) -> None:
    deadline = Deadline(60_000)
    found = audit_vectors(
        memory_store,
        collection,
        tmp_path,
        {
            0: minilm(TEXTS[0][:256]),
            1: MODEL.embed([TEXTS[1]], InputType.QUERY, deadline)[0],
            2: minilm(TEXTS[3]),
            4: unrelated(384),
            5: minilm("Robots need calibration of their cameras before they can grasp things."),
        },
        texts={6: "Something quite different."},
    )
    causes = {chunk_id: finding.kind for chunk_id, finding in found.items()}
    assert causes == {
        "c0": Kind.TRUNCATED_INPUT,
        "c1": Kind.WRONG_INPUT_TYPE,
        "c2": Kind.STALE_VECTOR,
        "c4": Kind.UNEXPLAINED_VECTOR,
        "c5": Kind.STALE_VECTOR,
        "c6": Kind.STALE_VECTOR,
    }
    assert found["c0"].details == f"Embedded from the first 256 of {len(TEXTS[0])} characters"
    assert found["c2"].details == "It is the vector of another chunk's text: c3"
    assert found["c6"].details.startswith("It is the vector of the manifest's text")
    assert abs(found["c4"].cosine or 0) < 0.2


def test_another_model_in_the_payload_counts_only_for_a_vector_that_fails(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    found = audit_vectors(memory_store, collection, tmp_path, {4: unrelated(384)}, model="embed-other")
    assert {chunk_id: finding.kind for chunk_id, finding in found.items()} == {"c4": Kind.WRONG_MODEL}
    assert found["c4"].details == "The payload says embed-other, queries are embedded by all-MiniLM-L6-v2"


def test_a_collection_embedded_by_another_model_of_the_same_size_is_recognized_by_its_structure(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    def other_model(text: str) -> Vector:  # the same meaning in other coordinates
        return minilm(text)[::-1]

    found = audit_vectors(
        memory_store, collection, tmp_path, {number: other_model(text) for number, text in enumerate(TEXTS)}
    )
    assert {finding.kind for finding in found.values()} == {Kind.WRONG_MODEL}
    assert len(found) == len(TEXTS)


def wordllama_turned(texts: Sequence[str]) -> list[Vector]:
    """Embed texts with another model, its 256 values in a random direction of 384."""
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(384, 384)))
    return [tuple(turn[:, :256] @ vector) for vector in WORDLLAMA.embed(texts, InputType.DOCUMENT, Deadline(1))]


def test_some_vectors_of_another_model_are_told_from_stale_and_random_ones(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    english = [chunk["text"] for chunk in sample_chunks() if chunk["document_id"].startswith(("robotics", "vectordb"))]
    texts = [text for text in english if not local_model().excess(text)][:60]
    others = dict(zip(range(0, 60, 2), wordllama_turned(texts[::2]), strict=True))
    planted: dict[int, Vector] = {
        **others,
        1: unrelated(384),
        3: minilm(texts[41]),
        5: minilm(f"Part 5: {texts[5][:400]}"),
    }
    found = audit_vectors(memory_store, collection, tmp_path, planted, all_texts=texts)
    kinds = {number: found[f"c{number}"].kind for number in planted}
    assert kinds[1] is Kind.UNEXPLAINED_VECTOR
    assert kinds[3] is Kind.STALE_VECTOR
    assert kinds[5] is Kind.UNEXPLAINED_VECTOR
    named = [kinds[number] for number in others]
    assert set(named) <= {Kind.WRONG_MODEL, Kind.UNEXPLAINED_VECTOR}
    assert named.count(Kind.WRONG_MODEL) >= 0.8 * len(named)
    assert len(found) == len(planted)


@pytest.mark.parametrize("form", ["passage: {}", "Handbook of robots and data\n\n{}"], ids=["prefix", "title"])
@pytest.mark.parametrize("step", [1, 3], ids=["all", "some"])
def test_the_same_model_with_a_prefix_or_title_is_never_called_another_model(
    memory_store: WritableStore, collection: str, tmp_path: Path, form: str, step: int
) -> None:
    planted = {number: minilm(form.format(TEXTS[number])) for number in range(0, len(TEXTS), step)}
    found = audit_vectors(memory_store, collection, tmp_path, planted)
    assert {finding.kind for finding in found.values()} <= {Kind.UNEXPLAINED_VECTOR}
    assert all("title or prefix" in (finding.details or "") for finding in found.values())


def test_vectors_of_another_size_come_from_another_model(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    memory_store.create(collection, 4, Deadline(60_000))
    point = Point(1, {"chunk_id": "a", "text": TEXTS[0]}, vector=(1.0, 0.0, 0.0, 0.0))
    memory_store.upsert(collection, [point], "", Deadline(60_000))
    lines = [Entry("a", TEXTS[0]).to_line()]
    report = run_audit(lines, tmp_path, services_on(memory_store, MODEL), collection, AuditPlan(vectors=0))
    assert [(f.kind, f.details) for f in report.findings] == [
        (Kind.WRONG_MODEL, "4 values are stored, all-MiniLM-L6-v2 makes 384")
    ]


def test_the_vector_of_a_text_too_long_for_the_model_is_truncated_or_unverifiable(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    long = " ".join(TEXTS[:6])
    fits = long
    while local_model().excess(fits):
        fits = fits[:-1]
    memory_store.create(collection, 384, Deadline(60_000))
    points = [
        Point(1, {"chunk_id": "cut", "text": long}, vector=tuple(minilm(fits))),
        Point(2, {"chunk_id": "odd", "text": long}, vector=tuple(unrelated(384))),
    ]
    memory_store.upsert(collection, points, "", Deadline(60_000))
    lines = [Entry(chunk_id, long).to_line() for chunk_id in ("cut", "odd")]
    report = run_audit(lines, tmp_path, services_on(memory_store, MODEL), collection, AuditPlan(vectors=0))
    assert {f.chunk_id: f.kind for f in report.findings} == {
        "cut": Kind.TRUNCATED_INPUT,
        "odd": Kind.UNVERIFIABLE_VECTOR,
    }


def test_an_audit_of_vectors_is_resumed_only_with_the_same_model(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    class Other:
        model, dimension, max_batch = "another", 384, 96

    memory_store.create(collection, 384, Deadline(60_000))
    lines = [Entry("a", "x").to_line()]
    run_audit(lines, tmp_path, services_on(memory_store, MODEL), collection, AuditPlan(vectors=0))
    digest = sha256(lines[0]).hexdigest()
    with pytest.raises(InvalidParameterError, match="another model"):
        resume(tmp_path, services_on(memory_store, Other()), collection, digest, AuditPlan(vectors=0))
    assert resume(tmp_path, services_on(memory_store, MODEL), collection, digest, AuditPlan(vectors=0)).vectors


def test_vectors_cannot_be_checked_without_an_embedder(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    memory_store.create(collection, 4, Deadline(60_000))
    with pytest.raises(NotConfiguredError):
        run_audit([Entry("a", "x").to_line()], tmp_path, services_on(memory_store), collection, AuditPlan(vectors=5))


def with_fewer_bits(vector: Vector, cosine: float, seed: int) -> Vector:
    """Return a vector with this cosine to the given one, as a lossy storage returns it."""
    noise = [value - 0.5 for value in hashed(len(vector))(str(seed))]
    along = sum(a * b for a, b in zip(vector, noise, strict=True))
    across = [b - along * a for a, b in zip(vector, noise, strict=True)]
    length = sum(value * value for value in across) ** 0.5
    return [cosine * a + (1 - cosine**2) ** 0.5 * b / length for a, b in zip(vector, across, strict=True)]


def test_vectors_that_are_stored_in_few_bits_are_not_stale(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    cosines = [0.9931 + 0.0002 * number for number in range(len(TEXTS))]
    vectors = {n: with_fewer_bits(minilm(text), cosines[n], n) for n, text in enumerate(TEXTS)}
    stale = with_fewer_bits(minilm(TEXTS[3]), 0.994, 99)
    found = audit_vectors(memory_store, collection, tmp_path, {**vectors, 2: stale})
    assert {chunk_id: finding.kind for chunk_id, finding in found.items()} == {"c2": Kind.STALE_VECTOR}
    state = load_progress(tmp_path)
    assert state is not None
    assert state.same_from == 0.99


def test_a_few_vectors_near_their_texts_are_still_wrong(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    vectors = {n: with_fewer_bits(minilm(TEXTS[n]), 0.995, n) for n in range(5)}
    found = audit_vectors(memory_store, collection, tmp_path, vectors)
    assert sorted(found) == ["c0", "c1", "c2", "c3", "c4"]


class OneSpace:
    """Two models of one service, which make other vectors of a text that can be compared."""

    max_batch = 8
    dimension = 384
    same_space = ()

    def __init__(self, model: str = "embed-v5.0-pro", query_model: str = "embed-v5.0-fast") -> None:
        self.model, self.query_model = model, query_model

    def with_model(self, model: str) -> "OneSpace":
        return OneSpace(model, model)

    def excess(self, _text: str) -> str | None:
        return None

    def embed(self, texts: Sequence[str], input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        model = self.query_model if input_type is InputType.QUERY else self.model
        return [hashed(384)(f"{model} {input_type} {text}") for text in texts]


def test_a_vector_is_compared_with_the_model_of_its_space_that_made_it(
    memory_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    embedder = OneSpace()
    names = ["embed-v5.0-pro", "embed-v5.0-fast", None, "embed-v4.0"]
    memory_store.create(collection, 384, Deadline(60_000))
    points = []
    for number, text in enumerate(TEXTS):
        name = names[number % 4]
        vector = embedder.with_model(name or embedder.model).embed([text], InputType.DOCUMENT, Deadline(1))[0]
        if number == 9:
            vector = embedder.embed([text], InputType.QUERY, Deadline(1))[0]
        payload = {"chunk_id": f"c{number}", "text": text, "embedding_model": name}
        points.append(Point(number, payload, vector=tuple(vector)))
    memory_store.upsert(collection, points, "", Deadline(60_000))
    lines = [Entry(f"c{number}", text).to_line() for number, text in enumerate(TEXTS)]
    report = run_audit(lines, tmp_path, services_on(memory_store, embedder), collection, AuditPlan(vectors=0))
    wrong = {f.chunk_id: (f.kind, f.details) for f in report.findings}
    other = (Kind.WRONG_MODEL, "The payload says embed-v4.0, queries are embedded by embed-v5.0-fast")
    question = (Kind.WRONG_INPUT_TYPE, "Embedded as a question (search_query) by embed-v5.0-fast, not as a passage")
    assert wrong == {"c9": question, **{f"c{number}": other for number in range(3, 20, 4)}}
