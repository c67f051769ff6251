"""`why`: each cause is named by the change that undoes it, and nothing is written."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from chunkproof.audit.snapshot_file import Snapshot, SnapshotWriter
from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.reader import Reader
from chunkproof.collection.services import Services
from chunkproof.embedders.embedder_port import InputType, Relevance
from chunkproof.proof.backend import LocalBackend
from chunkproof.stores.hybrid import make_bm25_vector
from chunkproof.stores.store_port import Layout, Point, WritableStore
from chunkproof.why.causes import Cause, WhyReport
from chunkproof.why.explainer import Explainer
from chunkproof.why.probe import Question, StackProbe

from support.audit_faults import unrelated
from support.chunks import fill, make_services
from support.sdk import sdk
from support.words import Words

PUMPS = "A pump moves water from the deep well to the tank. Its valve opens when the pressure in the tank falls."
OTHERS = (
    "Stars shine at night because hydrogen fuses in their core.",
    "Bread rises when yeast eats sugar and makes gas.",
    "The river floods the meadow in spring, and farmers wait.",
    "A violin has four strings and a hollow body of spruce.",
    "Chess players open with the king's pawn or the queen's pawn.",
    "Glass is molten sand that cools without crystals.",
    "The tank of a tram is not needed: its power comes from a wire.",
    "Goats climb steep rocks to reach salt.",
    "A pump for bicycles presses air into a tyre.",
    "Rain water is collected in a barrel below the roof.",
)
QUESTION = "which valve opens when the pressure of water in the tank falls"
Plant = Callable[[WritableStore, str], None]


def vector(text: str) -> tuple[float, ...]:
    return tuple(Words().embed([text], InputType.DOCUMENT, Deadline(1000))[0])


def point(number: int, text: str, **payload: Any) -> Point:
    fields = {"chunk_id": f"c{number}", "text": text, "url": f"https://docs.example.com/{number}", "lang": "en"}
    return Point(number, {**fields, **payload}, vector=vector(text))


def put(store: WritableStore, collection: str, *points: Point) -> None:
    store.upsert(collection, points, "", Deadline(60_000))


@pytest.fixture
def services(memory_store: WritableStore, collection: str) -> Services:
    """Eleven chunks, the first of which answers the question."""
    points = [point(n, text) for n, text in enumerate((PUMPS, *OTHERS), start=1)]
    fill(memory_store, collection, *points, size=Words.dimension)
    return make_services(memory_store, collection, Words())


@pytest.fixture
def before(services: Services, collection: str, tmp_path: Path) -> Snapshot:
    """What the collection holds before a fault is planted."""
    file = tmp_path / "before.snapshot"
    SnapshotWriter(file, Reader(services, collection), texts=True, vectors=True).write()
    return Snapshot(file)


def ask(
    services: Services, snapshot: Snapshot | None = None, expected: str = "c1", other_models: Any = (), **request: Any
) -> WhyReport:
    asked = {"query_text": QUESTION, "top_k": 2, **request}
    question = Question(asked, expected, snapshot, other_models=other_models)
    return Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question).report


def read(services: Services, collection: str) -> list[tuple[Any, Any, list[float]]]:
    """All points."""
    points = services.store.scroll(collection, Deadline(60_000), limit=100, with_vector="").points
    return [(p.id, p.payload, list(p.vector or ())) for p in points]


def rewrite(**changes: Any) -> Plant:
    def plant(store: WritableStore, collection: str) -> None:
        original = point(1, PUMPS)
        text = changes.get("text", PUMPS)
        payload = {**original.payload, **changes}
        put(store, collection, Point(1, {k: v for k, v in payload.items() if v is not None}, vector=vector(text)))

    return plant


def with_vector(values: tuple[float, ...], **payload: Any) -> Plant:
    return lambda store, collection: put(store, collection, replace(point(1, PUMPS, **payload), vector=values))


def delete(store: WritableStore, collection: str) -> None:
    sdk(store).delete(collection, [1])


def split(store: WritableStore, collection: str) -> None:
    delete(store, collection)
    first, second = PUMPS.split(". ")
    put(store, collection, point(21, first), point(22, second))


def move(store: WritableStore, collection: str) -> None:
    delete(store, collection)
    put(store, collection, point(31, PUMPS))


def flood(store: WritableStore, collection: str) -> None:
    copies = [
        point(n, f"Question {n}: {QUESTION}? Ask which valve opens when the pressure falls.") for n in (41, 42, 43)
    ]
    put(store, collection, *copies)


NEW = "Goats climb steep rocks. Stars shine at night. Seven bakers bake bread with yeast and sugar."
CASES: dict[Cause, tuple[Plant | None, dict[str, Any]]] = {
    Cause.FILTERED_OUT: (None, {"filters": {"lang": "de"}}),
    Cause.BELOW_THRESHOLD: (None, {"similarity_threshold": 0.95}),
    Cause.TEXT_CHANGED: (rewrite(text=NEW), {}),
    Cause.STALE_VECTOR: (with_vector(vector(NEW)), {}),
    Cause.OTHER_MODEL: (with_vector(tuple(unrelated(Words.dimension)), embedding_model="letters"), {}),
    Cause.DELETED: (delete, {}),
    Cause.SPLIT_DIFFERENTLY: (split, {}),
    Cause.ID_CHANGED: (move, {}),
    Cause.DUPLICATES: (flood, {}),
    Cause.FIELD_RENAMED: (rewrite(lang=None, language="en"), {"filters": {"lang": "en"}}),
    Cause.VALUE_CHANGED: (rewrite(lang="de"), {"filters": {"lang": "en"}}),
}


@pytest.mark.parametrize("cause", CASES)
def test_a_single_cause_is_named(services: Services, before: Snapshot, collection: str, cause: Cause) -> None:
    plant, request = CASES[cause]
    healthy = {**request, "filters": {"lang": "en"}, "similarity_threshold": 0.0}
    assert ask(services, before, **healthy).verdict.found
    if plant is not None:
        plant(services.store, collection)  # type: ignore[arg-type]
        services.forget(collection)
    stored = read(services, collection)
    found = ask(services, before, **request)
    assert found.verdict.causes == (cause,), found.verdict.line
    assert len(found.verdict.changes) == 1
    assert found.verdict.rank is not None
    assert found.verdict.rank <= 2
    assert read(services, collection) == stored


def test_two_causes_take_a_pair_of_changes(services: Services, before: Snapshot, collection: str) -> None:
    with_vector(vector(NEW))(services.store, collection)  # type: ignore[arg-type]
    found = ask(services, before, filters={"lang": "de"})
    assert set(found.verdict.causes) == {Cause.STALE_VECTOR, Cause.FILTERED_OUT}
    assert found.rows[-1].change == "with its text embedded anew and without the filter on lang"
    assert found.rows[-1].rank == 1
    assert not any(row.found for row in found.rows[:-1])


def test_a_chunk_that_is_found_needs_no_cause(services: Services) -> None:
    found = ask(services)
    assert (found.verdict.found, found.verdict.causes, found.verdict.rank) == (True, (), 1)


def test_a_chunk_that_others_outrank_is_no_fault(services: Services, before: Snapshot) -> None:
    found = ask(services, before, expected="c9", query_text="stars shine at night and bread rises in the core")
    assert found.verdict.causes == (Cause.BEYOND_TOP_K,)
    assert found.verdict.rank is not None
    assert f"-k {found.verdict.rank} " in (found.verdict.command or "")


def test_an_unknown_id_is_not_in_the_collection(services: Services, before: Snapshot) -> None:
    found = ask(services, before, expected="c99")
    assert found.verdict.causes == (Cause.NOT_IN_COLLECTION,)
    assert "nor does the snapshot" in found.verdict.line


def test_an_expected_text_is_found_inside_a_chunk_even_if_its_vector_is_wrong(
    services: Services, collection: str
) -> None:
    passage = "Its valve opens when  the pressure in the tank falls"
    assert ask(services, expected=passage).verdict.found
    with_vector(vector(NEW))(services.store, collection)  # type: ignore[arg-type]
    found = ask(services, expected=passage)
    assert (found.chunks, found.verdict.causes) == (("c1",), (Cause.STALE_VECTOR,))


def test_a_text_that_is_not_stored_is_ranked_as_if_it_were(services: Services, collection: str) -> None:
    delete(services.store, collection)  # type: ignore[arg-type]
    found = ask(services, expected=PUMPS)
    assert found.verdict.causes == (Cause.NOT_IN_COLLECTION,)
    assert found.verdict.rank == 1


def test_a_collection_of_another_model_is_named_as_one(services: Services, collection: str) -> None:
    class Turned(Words):
        model = "turned"

        def _vector(self, text: str) -> list[float]:
            values = super()._vector(text)
            return [-value for value in values[::-1]]

    points = services.store.scroll(collection, Deadline(60_000), limit=100).points
    turned = Turned()
    moved = [
        replace(p, vector=tuple(turned.embed([p.payload["text"]], InputType.DOCUMENT, Deadline(1))[0])) for p in points
    ]
    put(services.store, collection, *moved)  # type: ignore[arg-type]
    anew = ask(services)
    assert anew.verdict.causes == (Cause.OTHER_MODEL,)
    assert anew.verdict.changes == ("with every text embedded anew by words",)
    asked = ask(services, other_models=[turned])
    assert (asked.verdict.changes, asked.verdict.rank) == (("asked with turned",), 1)


def test_a_snapshot_of_hashes_shows_a_deletion_but_cannot_undo_it(
    services: Services, collection: str, tmp_path: Path
) -> None:
    file = tmp_path / "hashes.snapshot"
    SnapshotWriter(file, Reader(services, collection)).write()
    delete(services.store, collection)  # type: ignore[arg-type]
    found = ask(services, Snapshot(file))
    assert found.verdict.causes == (Cause.DELETED,)
    assert "cannot be put back" in found.verdict.line


def test_an_empty_expectation_is_refused(services: Services) -> None:
    with pytest.raises(InvalidParameterError, match="expected cannot be empty"):
        ask(services, expected=" ")


class Deaf(Words):
    """Knows no codes: it embeds texts without the words that have digits."""

    model = "deaf"

    def _vector(self, text: str) -> list[float]:
        return super()._vector(" ".join(word for word in text.split() if word.isalpha()))


CODES = {
    "c1": "Error E4711 is shown when the tank is empty, the valve is shut and the lamp on the left is red.",
    "c2": "Which error is that? Errors of the pump.",
    "c3": "What does that mean? The mean of errors.",
    "c4": "What is an error code and which does what.",
}


@pytest.fixture
def coded(memory_store: WritableStore, collection: str) -> Services:
    """Chunks of which one has a code that the embedder does not know."""
    embedder = Deaf()
    memory_store.create(collection, embedder.dimension, Deadline(60_000), text_search=True)
    points = [
        Point(
            n,
            {"chunk_id": name, "text": text},
            vector=tuple(embedder.embed([text], InputType.DOCUMENT, Deadline(1))[0]),
        )
        for n, (name, text) in enumerate(CODES.items(), start=1)
    ]
    text_vector = next(iter(memory_store.describe(collection, Deadline(60_000)).sparse_vectors), None)
    memory_store.upsert(collection, points, "", Deadline(60_000), text_vector=text_vector)
    return make_services(memory_store, collection, embedder)


def test_a_chunk_that_only_its_words_find_is_found_by_the_other_leg(coded: Services) -> None:
    asked = {"query_text": "error E4711", "top_k": 1}
    found = ask(coded, **asked)
    assert found.verdict.causes == (Cause.OTHER_LEG,), found.verdict.line
    assert found.verdict.changes[0].startswith("by words alone")
    assert "--mode text" in (found.verdict.command or "")
    assert ask(coded, **asked, mode="text").verdict.found


def test_a_search_by_words_is_repeated_as_a_whole(coded: Services) -> None:
    filtered = ask(coded, query_text="E4711", top_k=1, mode="text", filters={"chunk_id": ["c2", "c3"]})
    assert filtered.verdict.causes == (Cause.FILTERED_OUT,)
    assert "Changes of stored chunks were judged by the words that they share with the question" in filtered.notes


def test_a_chunk_of_opposite_meaning_is_outranked_and_nothing_is_blamed(services: Services, collection: str) -> None:
    opposite = tuple(-value for value in vector(QUESTION))
    put(services.store, collection, Point(61, {"chunk_id": "c61", "text": "?"}, vector=opposite))  # type: ignore[arg-type]
    found = ask(make_services(services.store, collection, Opposite()), expected="c61")
    assert found.verdict.causes == (Cause.BEYOND_TOP_K,), found.verdict.line
    assert "below 0" in found.verdict.line


class Opposite(Words):
    """Embeds a question mark as the opposite of the question."""

    def _vector(self, text: str) -> list[float]:
        return [-value for value in super()._vector(QUESTION)] if text == "?" else super()._vector(text)


def test_a_vector_of_nothing_known_is_not_called_another_models(services: Services, collection: str) -> None:
    with_vector(tuple(unrelated(Words.dimension)))(services.store, collection)  # type: ignore[arg-type]
    assert ask(services).verdict.causes == (Cause.STALE_VECTOR,)


def test_a_vector_of_the_first_words_is_named_as_one(services: Services, collection: str) -> None:
    first, long = "Goats climb steep rocks to reach salt, and bakers bake bread.", f"{PUMPS} {PUMPS} {PUMPS}"
    text = f"{first} {long}"
    put(services.store, collection, replace(point(1, text), vector=vector(first)))  # type: ignore[arg-type]
    verdict = ask(services).verdict
    assert verdict.causes == (Cause.EMBEDDED_IN_PART,), verdict.line
    assert "characters" in verdict.line


def test_the_row_that_is_the_cure_says_so(services: Services) -> None:
    report = ask(services, expected="c9")
    assert report.verdict.causes == (Cause.BEYOND_TOP_K,)
    assert [row.change for row in report.rows if row.found] == ["with a larger top_k"]


def test_many_filters_are_explained_within_the_deadline(services: Services, collection: str) -> None:
    fields = {f"field_{n}": n for n in range(40)}
    put(services.store, collection, point(1, PUMPS, **fields))  # type: ignore[arg-type]
    report = ask(services, filters={"lang": "de", **fields})
    assert report.verdict.causes == (Cause.FILTERED_OUT,)
    assert report.tried < 50
    lost = {f"field_{n}": "x" for n in range(40)}
    asked = {"query_text": QUESTION, "top_k": 2, "filters": lost}
    question = Question(asked, "c1", deadline=Deadline(1))
    late = Explainer(LocalBackend(services, lambda: Deadline(60_000))).explain(question).report
    assert "The time was over before every combination of changes was tried" in late.notes
    assert late.verdict.causes in ((Cause.UNEXPLAINED,), (Cause.FILTERED_OUT,))


def test_what_a_search_returns_beside_its_ranking_is_not_asked_for_again(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chunkproof.search.single.MAX_VECTOR_VALUES", 5 * Words.dimension)
    plain = ask(services, expected="c9")
    assert ask(services, expected="c9", with_vectors=True, with_payload=True, include_metadata=False) == plain


def test_near_duplicates_are_blamed_only_where_they_are(services: Services) -> None:
    assert ask(services, expected="c9").verdict.causes == (Cause.BEYOND_TOP_K,)
    assert ask(services, expected="c9", top_k=1, similarity_threshold=0.9).verdict.causes != (Cause.DUPLICATES,)


def test_an_unreadable_chunk_is_named_as_one_whatever_its_vector(services: Services, collection: str) -> None:
    lost = Point(1, {"chunk_id": "c1", "text": ["in", "pieces"]}, vector=tuple(unrelated(Words.dimension)))
    put(services.store, collection, lost)  # type: ignore[arg-type]
    assert Cause.UNREADABLE in ask(services).verdict.causes


def test_a_passage_in_a_field_that_is_not_read_is_unreadable_and_not_missing(
    services: Services, collection: str
) -> None:
    payload = {**point(1, PUMPS).payload, "text": None, "corps": {"fr": PUMPS}}
    put(services.store, collection, Point(1, payload, vector=vector(PUMPS)))  # type: ignore[arg-type]
    services.forget(collection)
    found = ask(services, expected="Its valve opens when the pressure")
    assert found.verdict.causes == (Cause.UNREADABLE,), found.verdict.line


def test_a_search_by_words_finds_a_renamed_field(coded: Services) -> None:
    code = {"chunk_id": "c1", "text": CODES["c1"], "language": "en"}
    name = str(coded.settings.collection)
    assert isinstance(coded.store, WritableStore)
    text_vector = next(iter(coded.store.describe(name, Deadline(60_000)).sparse_vectors), None)
    coded.store.upsert(name, [Point(1, code, vector=vector("lamp"))], "", Deadline(60_000), text_vector=text_vector)
    coded.forget(name)
    renamed = ask(coded, query_text="E4711", top_k=1, mode="text", filters={"lang": "en"})
    assert renamed.verdict.causes == (Cause.FIELD_RENAMED,), renamed.verdict.line


def test_a_vector_copied_from_another_chunk_is_stale_even_at_the_same_score(
    services: Services, collection: str
) -> None:
    """Three chunks score alike, and two are returned: no prediction says which."""
    same = vector("a pump, water, pressure, tank")
    copies = [replace(point(number, (PUMPS, *OTHERS)[number - 1]), vector=same) for number in (9, 10, 1)]
    for turn in range(20):  # which ones are returned depends on where they are stored
        sdk(services.store).delete(collection, [1, 9, 10])  # type: ignore[arg-type]
        for copied in (*copies[turn % 3 :], *copies[: turn % 3]):
            put(services.store, collection, copied)  # type: ignore[arg-type]
        services.forget(collection)
        found = ask(services, top_k=2)
        if not found.verdict.found:
            break
    assert found.verdict.causes == (Cause.STALE_VECTOR,), found.verdict.line


@pytest.mark.server
def test_commands_are_complete_for_a_pair_of_causes_and_none_is_printed_for_a_fix_that_is_refused(
    server_store: WritableStore, collection: str, tmp_path: Path
) -> None:
    points = [point(n, text) for n, text in enumerate((PUMPS, *OTHERS), start=1)]
    fill(server_store, collection, *points, size=Words.dimension)
    settings = {"QDRANT_URL": "http://localhost:6333"}
    served = replace(make_services(server_store, collection, Words()), settings=Settings.from_env(settings))
    with_vector(vector(NEW))(server_store, collection)
    pair = ask(served, collection=collection, filters={"lang": "de"}).verdict
    assert pair.then is not None
    assert "-d @fix.json && chunkproof search -k 2 --collection" in pair.then
    file = tmp_path / "hashes.snapshot"
    put(server_store, collection, points[0])
    SnapshotWriter(file, Reader(served, collection), texts=True, vectors=True).write()
    dotted = [replace(each, payload={**each.payload, "a.b": 1}) for each in points[1:]]
    put(server_store, collection, *dotted)
    delete(server_store, collection)
    served.forget(collection)
    refused = ask(served, Snapshot(file), collection=collection)
    assert refused.verdict.causes == (Cause.DELETED,)
    assert (refused.verdict.command, refused.verdict.then) == (None, None)
    assert any("No fix can be written" in line for line in refused.notes)


def test_a_page_of_a_ranking_is_refused_and_the_first_one_is_the_search(services: Services) -> None:
    assert ask(services, cursor="start").verdict.found
    with pytest.raises(InvalidParameterError, match="raise top_k"):
        ask(services, cursor="abc")


def test_copies_of_a_chunk_take_its_place_whatever_their_ids(services: Services, collection: str) -> None:
    """Six chunks score alike, and two are returned: the expected one has the first id, and is not among them."""
    copies = [point(n, PUMPS, chunk_id=f"c1.{n}") for n in range(51, 56)]
    put(services.store, collection, *copies)  # type: ignore[arg-type]
    for _ in range(20):  # which of them are returned depends on where they are stored
        services.forget(collection)
        found = ask(services)
        if not found.verdict.found:
            break
        sdk(services.store).delete(collection, [1])  # type: ignore[arg-type]
        put(services.store, collection, point(1, PUMPS))  # type: ignore[arg-type]
    assert found.verdict.causes == (Cause.DUPLICATES,), found.verdict.line


def test_what_is_outranked_without_groups_too_was_not_lost_by_them(services: Services) -> None:
    asked = {"query_text": "stars shine at night and bread rises in the core", "group_by": "lang", "top_k": 1}
    verdict = ask(services, expected="c9", **asked).verdict
    assert verdict.causes == (Cause.BEYOND_TOP_K,), verdict.line


def test_a_text_that_is_not_the_hashed_one_is_named_where_the_search_checks_it(
    services: Services, collection: str
) -> None:
    hashed = [
        point(n, text, content_hash=sha256(text.encode()).hexdigest())
        for n, text in enumerate((PUMPS, *OTHERS), start=1)
    ]
    changed = replace(hashed[0], payload={**hashed[0].payload, "text": f"Draft. {PUMPS}"})
    put(services.store, collection, changed, *hashed[1:])  # type: ignore[arg-type]
    services.forget(collection)
    verdict = ask(services, require_integrity=True).verdict
    assert verdict.causes == (Cause.TEXT_CHANGED,), verdict.line
    assert verdict.changes == ("without require_integrity",)
    assert "--require-integrity" not in (verdict.command or "--require-integrity")


class Backwards:
    """Puts the least relevant candidate first."""

    def rerank(self, _query: str, documents: Sequence[str], _model: str, _deadline: Deadline) -> Relevance:
        return Relevance(tuple(n / len(documents) for n in range(len(documents))))


def test_reranking_that_the_settings_ask_for_is_seen_and_left_out(services: Services) -> None:
    settings = Settings.from_env(
        {"CHUNKPROOF_COLLECTION": str(services.settings.collection), "CHUNKPROOF_RERANK": "always"}
    )
    always = replace(services, settings=settings, reranker=Backwards())
    verdict = ask(always).verdict
    assert (verdict.causes, verdict.rank) == ((Cause.RERANKED,), 1), verdict.line
    assert (verdict.command or "").startswith("CHUNKPROOF_RERANK=requested chunkproof search -k 2 ")


def write_words(store: WritableStore, collection: str, *, is_dense: bool, shift: int = 0) -> Services:
    """Write the chunks with BM25 vectors, the indices of which are shifted as another tokenizer's would be."""
    layout = Layout(
        {"": {"size": Words.dimension, "distance": "Cosine"}} if is_dense else {}, {"bm25": {"modifier": "idf"}}
    )
    store.create_like(collection, layout, Deadline(60_000))
    structs = []
    for number, text in enumerate((PUMPS, *OTHERS), start=1):
        words = make_bm25_vector(text)
        words["indices"] = [index + shift for index in words["indices"]]
        made = {"bm25": words} | ({"": list(vector(text))} if is_dense else {})
        structs.append({"id": number, "vector": made, "payload": dict(point(number, text).payload)})
    store.write_points(collection, structs, Deadline(60_000))
    return make_services(store, collection, Words())


def test_a_collection_without_a_dense_vector_is_explained_in_mode_text(
    memory_store: WritableStore, collection: str
) -> None:
    services = write_words(memory_store, collection, is_dense=False)
    assert ask(services, mode="text").verdict.found
    filtered = ask(services, mode="text", filters={"lang": "de"}).verdict
    assert filtered.causes == (Cause.FILTERED_OUT,), filtered.line
    payload = dict(point(1, PUMPS).payload)
    memory_store.write_points(collection, [{"id": 1, "vector": {}, "payload": payload}], Deadline(60_000))
    lacking = ask(services, mode="text").verdict
    assert (lacking.causes, lacking.rank) == ((Cause.STALE_VECTOR,), 1), lacking.line


def test_words_of_another_tokenizer_are_named_for_the_whole_collection(
    memory_store: WritableStore, collection: str
) -> None:
    verdict = ask(write_words(memory_store, collection, is_dense=True, shift=7), mode="text").verdict
    assert verdict.causes == (Cause.STALE_VECTOR,), verdict.line
    assert "are of other words than its texts" in verdict.line
    assert "--mode dense" in (verdict.command or "")


def test_a_vector_of_words_that_would_not_be_found_either_is_not_the_whole_cause(
    memory_store: WritableStore, collection: str
) -> None:
    """The rank by words is predicted, and copies of the question would still be before the chunk."""
    services = write_words(memory_store, collection, is_dense=True)
    twice = f"{QUESTION} {QUESTION}"
    made = {"": list(vector(twice)), "bm25": make_bm25_vector(twice)}
    copies = [{"id": n, "vector": made, "payload": {"text": twice}} for n in (71, 72, 73)]
    bare: dict[str, Any] = {"id": 1, "vector": {"": list(vector(PUMPS))}, "payload": dict(point(1, PUMPS).payload)}
    memory_store.write_points(collection, [*copies, bare], Deadline(60_000))
    verdict = ask(services, mode="text").verdict
    assert (verdict.causes, verdict.rank) == ((Cause.STALE_VECTOR, Cause.BEYOND_TOP_K), 4), verdict.line
    bare["vector"]["bm25"] = make_bm25_vector(PUMPS)
    memory_store.write_points(collection, [bare], Deadline(60_000))
    assert ask(services, mode="text", top_k=10).verdict.rank == 4  # as it was predicted


def test_the_weights_of_a_fusion_are_named_where_one_leg_counts_for_nothing(
    memory_store: WritableStore, collection: str
) -> None:
    services = write_words(memory_store, collection, is_dense=True)
    words = {"": list(vector(OTHERS[0])), "bm25": make_bm25_vector(f"{QUESTION} " * 4)}
    payload = dict(point(2, OTHERS[0]).payload)
    memory_store.write_points(collection, [{"id": 2, "vector": words, "payload": payload}], Deadline(60_000))
    fusion = {"weights": {"dense": 0, "text": 1}}
    verdict = ask(services, mode="hybrid", fusion=fusion, top_k=1).verdict
    assert verdict.causes == (Cause.OTHER_LEG,), verdict.line
    assert verdict.changes == ("without the weights of the fusion",)
    assert "--fusion" not in (verdict.command or "--fusion")
    assert "--mode hybrid" in (verdict.command or "")


def test_a_vector_that_is_shorter_than_all_others_is_named_where_a_store_measures_dot(
    memory_store: WritableStore, collection: str
) -> None:
    layout = Layout({"": {"size": Words.dimension, "distance": "Dot"}}, {})
    memory_store.create_like(collection, layout, Deadline(60_000))
    points = [point(n, text) for n, text in enumerate((PUMPS, *OTHERS * 11), start=1)]
    short = replace(points[0], id=999, vector=tuple(value / 8 for value in vector(PUMPS)))
    memory_store.upsert(collection, [short, *points[1:]], "", Deadline(60_000))
    verdict = ask(make_services(memory_store, collection, Words())).verdict
    assert verdict.causes == (Cause.STALE_VECTOR,), verdict.line
    assert "its length is 0.12, not 1.00" in verdict.line


def test_a_title_means_the_chunks_of_its_document(services: Services, collection: str) -> None:
    put(services.store, collection, point(1, PUMPS, title="Pump manual"))  # type: ignore[arg-type]
    services.forget(collection)
    assert ask(services, expected="Pump manual").verdict.found
    verdict = ask(services, expected="Pump manual", filters={"lang": "de"}).verdict
    assert verdict.causes == (Cause.FILTERED_OUT,), verdict.line


@pytest.mark.parametrize("request_of", [{}, {"similarity_threshold": 0.99}], ids=["outranked", "below"])
def test_a_stale_vector_that_is_not_the_whole_cause_is_not_called_outranked(
    services: Services, collection: str, request_of: dict[str, Any]
) -> None:
    """Copies of the question take the first places: embedded anew, the chunk is nearer, and lost all the same."""
    copies = [point(n, f"{QUESTION} {word}") for n, word in enumerate(("a", "of", "so"), start=71)]
    stale = replace(point(1, PUMPS), vector=vector(OTHERS[8]))
    put(services.store, collection, stale, *copies)  # type: ignore[arg-type]
    services.forget(collection)
    report = ask(services, **request_of)
    assert Cause.BEYOND_TOP_K not in report.verdict.causes, report.verdict.line


@pytest.mark.parametrize("text", [NEW, f"Nothing of that. {NEW}"])
def test_a_text_that_is_not_the_hashed_one_is_named_whatever_else_finds_it(
    memory_store: WritableStore, collection: str, text: str
) -> None:
    services = write_words(memory_store, collection, is_dense=True)
    structs = []
    for number, hashed in enumerate((PUMPS, *OTHERS), start=1):
        shown = text if number == 1 else hashed
        payload = {**point(number, shown).payload, "content_hash": sha256(hashed.encode()).hexdigest()}
        vectors = {"": list(vector(shown)), "bm25": make_bm25_vector(hashed)}
        structs.append({"id": number, "vector": vectors, "payload": payload})
    memory_store.write_points(collection, structs, Deadline(60_000))
    verdict = ask(services).verdict
    assert verdict.causes == (Cause.TEXT_CHANGED,), verdict.line


def test_a_command_is_printed_only_where_it_is_the_cure(services: Services, collection: str) -> None:
    unknown = ask(services, expected="c99").verdict
    put(services.store, collection, replace(point(1, PUMPS), payload={"chunk_id": "c1", "inhalt": PUMPS}))  # type: ignore[arg-type]
    services.forget(collection)
    unreadable = ask(services)
    assert (unknown.command, unreadable.verdict.command) == (None, None)
    assert any("CHUNKPROOF_PAYLOAD_MAP to set, which chunkproof doctor" in note for note in unreadable.notes)


def test_a_stack_blames_a_filter_only_where_words_do_not_lose_the_chunk(coded: Services) -> None:
    name = {"chunk_id": ["c1", "c2", "c3"]}
    question = Question({"query_text": "lamp", "top_k": 1, "mode": "text", "filters": name}, "c2")
    verdict = StackProbe(LocalBackend(coded, lambda: Deadline(60_000))).explain(question).report.verdict
    assert verdict.causes == (Cause.BEYOND_TOP_K,), verdict.line
    assert verdict.command is None
