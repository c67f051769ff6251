"""Check a collection without changing it: what it holds, and what decides speed and ranking."""

import json
import re
import shlex
from base64 import a85decode, b32decode, b64decode, b85decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean, median
from typing import Any
from urllib.parse import unquote_to_bytes

from pydantic_core import to_json

from chunkproof.base.errors import ChunkproofError, InvalidParameterError, UnsupportedDistanceError
from chunkproof.base.request import Deadline
from chunkproof.base.words import is_unspaced
from chunkproof.collection.facts import choose_vector, collection_info, find_mapping
from chunkproof.collection.payload_map import PayloadMap, id_at, lies_in_json_string, parse_json, recognise_hashes
from chunkproof.collection.services import SAMPLE_POINTS, Collection, LongRun, Services
from chunkproof.contract import SearchQuery
from chunkproof.contract.conditions import parse_filters
from chunkproof.proof.integrity import digest
from chunkproof.search.filters import map_filters
from chunkproof.search.neighbours import find_place
from chunkproof.search.single import search
from chunkproof.stores.qdrant import USABLE_INDEXES, required_indexes
from chunkproof.stores.store_port import Description, Point, PointId, VectorConfig
from chunkproof.suite.cases import Suite
from chunkproof_cli.aws.stack import FunctionLimits, find_misfit
from chunkproof_cli.doctor.doctor_report import CheckResult, DoctorReport, Level, fail, note, ok
from chunkproof_cli.doctor.vector_checks import check_vectors, choose_reading, find_joined, spread

SAMPLE_ROWS, PAGE = 3, 500
# A field with texts so many times longer, or so much more varied, is more likely the text.
MUCH_LONGER = 5
FILTERED_FIELDS = ("url", "document_id", "timestamp")
# Texts and ids of so many points are compared with each other.
MAX_SCANNED, MAX_NAMED, MAX_LISTED = 10_000, 3, 20
# Below this, Qdrant compares all vectors anyway: its default indexing threshold is 20 MB of vectors.
MIN_INDEXED_POINTS, MOSTLY_INDEXED = 10_000, 0.9
# The index of vectors takes about a fifth of their size.
FLOAT_BYTES, INDEX_SHARE = 4, 1.2
# What Qdrant's BM25 model assumes unless it is given another average length.
DEFAULT_AVG_LEN = 256
# Fields with less than this share of the longest texts are titles and the like.
PLAUSIBLE = 0.05
# A shorter word can be a sentence in an encoding by chance.
LEAST_ENCODED, MOST_DECODED = 24, 10_000
# No text is looked for in more fields; a name that fewer than one point of so many has is not a field.
MOST_TRIED, SCATTERED = 32, 5
# A list of so many words or characters is a text cut up, a shorter one rather tags.
LEAST_PIECES = 8
# Longer than any hash, in the characters of base64: beside a longer text, it may be a picture or a signature.
OPAQUE, LEAST_TEXT = "encoded, compressed or encrypted", 100
_OPAQUE = re.compile(r"[\w+/=.-]{132,}", re.ASCII)
_URL_SAFE = str.maketrans("-_", "+/")
# The beginnings of gzip, bzip2, XZ, Zstandard, LZ4 and zlib.
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd", b'\x04"M\x18', b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
_SOURCE = re.compile(r"[a-z][a-z\d+.-]*://\S+|[^\n@]{1,300}\.[a-z]\w{1,4}", re.I)
_PICTURE = re.compile(r"\.(?:png|jpe?g|gif|webp|svg|ico)(?:\?|$)", re.I)
LEAST_COMPARED, MOST_COMPARED, MOST_COMPARED_BYTES = 5, 128, 1_000_000
TITLES = ("section_heading", "document_title")
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_HEADING = re.compile(r"#{1,6}\s|[=-]{3,}$")
_NOT_ASCII = re.compile("[^\x00-\x7f]+")


@dataclass(frozen=True, slots=True)
class TextField:
    """A field with texts: its path, their median length, and how likely they are the text: long, varied, in all."""

    path: str
    chars: int
    weight: float


@dataclass(frozen=True)
class _Patient:
    """A collection under examination: its description and a sample of its points."""

    collection: Collection
    description: Description
    points: Sequence[Point]

    @property
    def texts(self) -> list[str]:
        """The texts of the sampled points that have one."""
        values = (self.collection.services.payloads.value("text", point.payload) for point in self.points)
        return [text for text in values if isinstance(text, str) and text.strip()]


def check_collection(
    name: str | None, services: Services, deadline: Callable[[], Deadline], suites: Sequence[Suite] = ()
) -> DoctorReport:
    """Check the named collection, or the only one there is, and the filters of these suites."""
    report = DoctorReport(services.store.host, services.store.collections(deadline()))
    with suppress(ChunkproofError):  # a proxy may hide the server's version
        report.store = services.store.features(deadline()).store
    report.collection = name = _choose_collection(name, services, report.collections)
    # It may be an alias; `describe` raises `CollectionNotFoundError` for a name that is none.
    collection = LongRun(services, name, deadline)
    collection.forget()
    description, survey = collection.describe(), _survey(collection)
    patient = _Patient(collection, description, spread(survey.points, SAMPLE_POINTS))
    report.info = collection_info(collection) if description.vectors else None
    vector, better = _read_sample(report, patient)
    report.sound = dict(_list_sound(patient, survey))
    hashes = collection.hashes
    report.content_hash = str(hashes.content_hash) if hashes.content_hash else None
    report.checks = [
        *_check_state(patient.description),
        *_check_distance(report, patient, vector),
        *_check_payload(report, better),
        *_check_hashes(report, is_per_source=hashes.is_per_source),
        *_check_copies(patient, survey),
        *_check_texts(survey),
        *_check_coverage(patient, survey),
        *_check_indexes(report, patient),
        *check_vector_index(patient.description),
        *_check_room(patient),
        *_check_sparse_vectors(patient),
        *(result for suite in suites for result in _check_suite_filters(suite, patient)),
        *check_vectors(vector, patient.description, survey.choose_compared(), collection),
    ]
    settled = ["vectors"] * bool(report.unreadable or report.joined) + ["content_hash"] * bool(hashes.chunk_id)
    report.checks = [result for result in report.checks if result.check not in settled]  # which has been explained
    if report.passed:
        report.checks += _check_search(patient)
    report.suggested_settings = list(_suggest_settings(report, services))
    return report


def _choose_collection(name: str | None, services: Services, names: list[str]) -> str:
    default, host = services.settings.collection, services.store.host
    if name is not None or default in names:
        return name or default
    if len(names) == 1:
        return names[0]
    raise InvalidParameterError(
        f"There are {len(names)} collections at {host}; choose one with --collection: "
        f"{', '.join(names[:MAX_LISTED])}{', …' * (len(names) > MAX_LISTED)}"
        if names
        else f"There is no collection at {host}: load one with chunkproof load, or set QDRANT_URL"
    )


def _read_sample(report: DoctorReport, patient: _Patient) -> tuple[VectorConfig | None, TextField | None]:
    """Fill in how the payloads are read; return the vector to search, and a better field for the text, if there is one.

    Where several vectors or fields are possible, those are right that the embedder makes of each other.
    """
    collection, services = patient.collection, patient.collection.services
    payloads, reading = [dict(point.payload) for point in patient.points], services.payloads
    report.mapping = find_mapping(payloads, reading)
    if not any(isinstance(reading.value("url", payload), str) for payload in payloads):
        report.mapping.pop("url", None)  # a list or an object is none
    current, texts = report.mapping.get("text"), _texts_by_path(payloads)
    fields = {field.path: field for field in rank_text_fields(texts, len(payloads))}
    vectors, vector = patient.description.vectors, None
    with suppress(ChunkproofError):
        vector = choose_vector(vectors, services.settings.vector_name, collection.name)
    # A text may be JSON itself, or a single word.
    more = [path for path in texts if not fields or any(inner.startswith((f"{path}.", f"{path}[")) for inner in fields)]
    paths = list(dict.fromkeys([*filter(None, [current]), *fields, *more]))[:MOST_TRIED]
    searched = [vector] if vector else [each for each in vectors if each.distance in ("Cosine", "Dot")] or [*vectors]
    is_clear = bool(current) and len(searched) * len(paths) <= 1
    chosen = None if is_clear else choose_reading(collection, patient.points, searched, paths)
    agreement, vector_read, path_read = chosen or (0.0, vector, current)
    better, now = next(iter(fields.values()), None), fields.get(current or "")
    if chosen is not None:
        lengths = map(len, texts.get(chosen[2], [""]))
        better = None if chosen[2] == current else TextField(chosen[2], int(median(lengths)), 0.0)
    elif better and now and better.weight <= MUCH_LONGER * now.weight:
        better = None
    longest = max((field.chars for field in fields.values()), default=0)
    report.unreadable = _find_unreadable(texts, path_read, longest, len(payloads))
    if report.unreadable is None:
        report.joined = find_joined(collection, patient.points, searched, [*fields], agreement)
        read = [better.path] if better else reading.paths_in("text", payloads)
        paths = _find_all_fields(patient, vector_read, read)
        report.is_embedded = chosen is not None or (len(paths) > len(read) and better is None)
        configured, rows = services.settings.payload_map, {"text": (*paths,)} if better or paths != read else {}
        rows |= _find_other_rows(report, PayloadMap({**configured, **rows}), texts, payloads)
        proposed = {**configured, **rows} if rows else {}
        report.proposed_map = {name: paths[0] if len(paths) == 1 else list(paths) for name, paths in proposed.items()}
        reading = PayloadMap({**configured, **rows})  # as they would be read with the proposed map
    report.shown = find_mapping(payloads, reading)
    report.rows = [{field: reading.value(field, each) for field in report.shown} for each in payloads[:SAMPLE_ROWS]]
    report.shares = {
        field: sum(isinstance(v, str) and bool(v.strip()) if field in ("text", "url") else bool(v) for v in values)
        / len(payloads)
        for field in ("text", "url", "document_title", "content_hash")
        if (values := [services.payloads.value(field, payload) for payload in payloads])
    }
    if vector is None:
        made = collection.embedder and collection.embedder.dimension
        fitting = [each for each in searched if each.size == made]
        vector = vector_read or (fitting[0] if len(fitting) == 1 else None)
        report.proposed_vector = vector.name if vector else None
    return vector, better


def _find_other_rows(
    report: DoctorReport, reading: PayloadMap, texts: Mapping[str, Sequence[str]], payloads: Sequence[dict[str, Any]]
) -> dict[str, tuple[str, ...]]:
    """Find fields that are not read: those of an object that has several of them; a URL and a hash by their look."""
    read, rows = reading.paths_in("text", payloads), {}
    usual = [path for path, found in texts.items() if path not in read and 2 * len(found) > len(payloads)]
    for path in (path for path in usual if path not in reading.id_paths):
        hashed = PayloadMap({"text": tuple(read), "content_hash": (path,)})
        if recognise_hashes(hashed, payloads, are_all=False).content_hash:
            rows["content_hash"] = (path,)
    if sources := [path for path in usual if all(map(_SOURCE.fullmatch, texts[path]))]:
        rows["url"] = (max(sources, key=lambda path: (not _PICTURE.search(texts[path][0]), "://" in texts[path][0])),)
    homes = {path.rpartition(".")[0] for path in (*read, *rows.get("url", ()))}
    for parent in dict.fromkeys(path.rpartition(".")[0] for path in usual if "." in path):
        objects = [value for payload in payloads if isinstance(value := reading.value_at(parent, payload), dict)]
        if len(inner := find_mapping(objects, PayloadMap())) > (parent not in homes):
            rows |= {field: (f"{parent}.{path}",) for field, path in inner.items()}
    return {field: row for field, row in rows.items() if field != "text" and report.mapping.get(field) in (None, *read)}


def _find_all_fields(patient: _Patient, vector: VectorConfig | None, read: Sequence[str]) -> list[str]:
    """Return the fields that are read, and those that points without them have: embedded, or if unknown, as long."""
    without, paths = list(patient.points), [*read]
    for path in paths:
        without = [point for point in without if not PayloadMap({"text": (path,)}).find_text(point)]
        if path == paths[-1] and vector and 0 < len(without) < len(patient.points):
            fields = rank_text_fields(_texts_by_path([point.payload for point in without]), len(without))
            tried = [field.path for field in fields[:MOST_TRIED]]
            chosen, embedder = choose_reading(patient.collection, without, [vector], tried), patient.collection.embedder
            is_blind = embedder is None or embedder.dimension not in (None, vector.size)
            usual = median(map(len, _texts_by_path([point.payload for point in patient.points]).get(path, [""])))
            similar = [each.path for each in fields if is_blind and 2 * each.chars > usual]
            paths += [chosen[2]] if chosen else similar[:1]
    return paths


def _check_state(info: Description) -> Iterator[CheckResult]:
    """Check whether there is anything to search, whether the server is well, and how exact its searches are."""
    if info.points_count == 0:
        yield fail("points", "The collection is empty", "Load it: chunkproof load chunks.jsonl")
    if info.status in ("red", "grey"):
        yield note("status", f"Qdrant reports status {info.status}", "Read the server's log")
    if info.quantization:
        yield note(
            "quantization",
            f"Vectors are compressed ({info.quantization}): searches may miss results that exact search finds",
            "Compare with exact search: chunkproof suite run SUITE --exact",
        )


def _check_distance(report: DoctorReport, patient: _Patient, vector: VectorConfig | None) -> Iterator[CheckResult]:
    description = patient.description
    if not description.vectors:
        sparse = f"its sparse vectors are {', '.join(description.sparse_vectors)}" if description.sparse_vectors else ""
        yield fail(
            "vector",
            f"The collection has no dense vector{sparse and f'; {sparse}'}: of a multi-vector or a sparse vector, "
            "Chunkproof computes no cosine",
            "validate, audit and absent work as they are. Sparse vectors of BM25 are searched with --mode text; "
            "for other searches, add a dense vector",
        )
        return
    try:
        config = patient.collection.vector
    except UnsupportedDistanceError as error:
        yield fail("distance", str(error), "Create the collection again with Cosine distance")
    except InvalidParameterError as error:
        fits = f"Set CHUNKPROOF_VECTOR_NAME={shlex.quote(vector.name)}: the embedder's vectors fit it" if vector else ""
        yield fail("vector", str(error), fits)
    else:
        yield ok("distance", f"{config.distance}: scores are cosine similarities")


def _check_payload(report: DoctorReport, better: TextField | None) -> Iterator[CheckResult]:
    shares = report.shares
    if not shares:
        return
    setting = _map_setting(report.proposed_map)
    if report.unreadable:
        remedy = "Store the text itself in a field of the payload that has the same name in all, such as text"
        yield fail("text", report.unreadable, remedy)
    elif report.joined:
        yield fail(
            "text",
            f"The stored vectors are of {' and '.join(report.joined)} together, and a payload map reads one field",
            "Store the whole text that was embedded in a field of the payload, such as text; until then, a chunk is "
            "validated by the longer field alone",
        )
    elif shares["text"] == 0.0:
        looks = f"; {better.path} looks like it ({better.chars} characters each)" if better else ""
        looks += ", if each piece of the list may stand on a line of its own" if better and "[]" in better.path else ""
        looks += ", which the stored vectors do not confirm" if better and not report.is_embedded else ""
        store = "Store each chunk's text in the payload: search returns it from there"
        remedy = f"Set {setting}" if "text" in report.proposed_map else store
        blank = f"The sampled texts in {report.mapping['text']} are empty" if "text" in report.mapping else ""
        yield fail("text", (blank or "The sampled payloads have no text field that Chunkproof knows") + looks, remedy)
    elif better:
        longer = f"{better.path} has longer and more varied texts"
        what = f"the stored vectors are of {better.path}" if report.is_embedded else longer
        yield note(
            "text",
            f"The text is read from {report.mapping['text']}, but {what} ({better.chars} characters each)",
            f"If that is the text, set {setting}",
            shares["text"],
        )
    else:
        others = report.proposed_map.get("text")
        level = Level.OK if shares["text"] == 1.0 and not others else Level.NOTE
        where = f" in {report.mapping['text']}, others in {others[-1]}" if others else ""
        message = f"{shares['text']:.0%} of the sampled points have text{where}"
        yield CheckResult(level, "text", message, f"Set {setting}" if others else None, shares["text"])
    for name, effect, value in (
        ("url", "results do not show their source", "source"),
        ("content_hash", "a chunk can be validated only against an original", "text's SHA-256"),
    ):
        if shares[name] < 1.0:
            path, message = report.proposed_map.get(name), f"{shares[name]:.0%} of the sampled points have {name}"
            found = f"If {path} has it, set {setting}" if path else f"Store each {value} in the payload, as {name}"
            yield note(name, f"{message}; without it, {effect}", found)


def _check_hashes(report: DoctorReport, *, is_per_source: bool) -> Iterator[CheckResult]:
    """Say why the stored hashes prove nothing, if there are any."""
    if report.shares.get("content_hash") and report.content_hash is None:
        shared, unknown = "chunks with different texts have the same one", "not a SHA-256, SHA-1 or MD5 of the text"
        yield note(
            "content_hash",
            f"The stored content_hash proves nothing ({shared if is_per_source else unknown}) and is ignored",
            "Validate against an original: chunkproof validate CHUNK_ID --original-file FILE",
        )


@dataclass
class _Survey:
    """What was seen of the first points: some from all over, their ids, and the points of each text and own id."""

    points: list[Point] = field(default_factory=list)
    point_ids: list[PointId] = field(default_factory=list)
    texts: dict[str, list[PointId]] = field(default_factory=dict)
    own_ids: Counter[str] = field(default_factory=Counter)
    misread: list[PointId] = field(default_factory=list)
    headings: list[PointId] = field(default_factory=list)
    documents: dict[str, list[int]] = field(default_factory=dict)
    bytes: int = 0

    def choose_compared(self) -> list[PointId]:
        """Return ids of points from all over the collection, as many as can be embedded again at once."""
        fitting = MOST_COMPARED_BYTES * len(self.point_ids) // max(1, self.bytes)
        return spread(self.point_ids, max(LEAST_COMPARED, min(MOST_COMPARED, fitting)))


def _survey(collection: Collection) -> _Survey:
    payloads, seen = collection.services.payloads, _Survey()
    for page in collection.scan(page_points=PAGE):
        seen.points += spread(page.points, SAMPLE_POINTS)
        for point in page.points:
            seen.point_ids.append(point.id)
            text, path = payloads.value("text", point.payload), payloads.id_path(point.payload)
            if isinstance(text, str) and text.strip():
                seen.bytes += len(text)
                seen.texts.setdefault(digest(text.encode("utf-8", "replace").decode()), []).append(point.id)
                if is_mojibake(text):
                    seen.misread.append(point.id)
                lines, titles = text.strip().splitlines(), [payloads.value(name, point.payload) for name in TITLES]
                if all(_HEADING.match(line.strip()) for line in lines if line.strip()) or text.strip() in titles:
                    seen.headings.append(point.id)
            if path and (value := id_at(path, point.payload)):
                seen.own_ids[value] += 1
            if place := find_place(point.payload, payloads):
                seen.documents.setdefault(str(place.document), []).append(int(place.position))
        if len(seen.point_ids) >= MAX_SCANNED:
            break
    return seen


def find_holes(positions: Iterable[int]) -> list[int]:
    """Return the positions that are missing between the others, and before them if others begin at 0 or 1.

    Positions that are mostly holes are page numbers or offsets: then nothing is missing.
    """
    known = set(positions)
    if not known:
        return []
    start = min(known) if min(known) <= 1 else 0
    if max(known) - start >= 2 * len(known):
        return []
    return [position for position in range(start, max(known)) if position not in known]


def _list_sound(patient: _Patient, survey: _Survey) -> Iterator[tuple[str, str]]:
    """Yield what to say of parts of the health in which nothing is found."""
    scanned, points = len(survey.point_ids), patient.description.points_count
    among = "" if scanned >= points else f" among the first {scanned:,} points"
    if survey.texts:
        yield "no duplicates", f"No text is stored twice{among}"
    if survey.documents and scanned >= points:
        yield "coverage", f"The positions in {len(survey.documents):,} documents have no holes"


def _check_coverage(patient: _Patient, survey: _Survey) -> Iterator[CheckResult]:
    """Find positions of documents that no chunk has; only where every point was read."""
    if len(survey.point_ids) < patient.description.points_count:
        return
    holes = {document: missing for document, found in survey.documents.items() if (missing := find_holes(found))}
    lost, present = sum(map(len, holes.values())), sum(map(len, survey.documents.values()))
    if not lost:
        return
    named = ", ".join(
        f"{document} ({', '.join(map(str, at[:MAX_NAMED]))})" for document, at in islice(holes.items(), MAX_NAMED)
    )
    more = f" and {len(holes) - MAX_NAMED:,} more" if len(holes) > MAX_NAMED else ""
    yield note(
        "missing chunks",
        f"{lost:,} positions in {len(holes):,} of {len(survey.documents):,} documents have no chunk: {named}{more}",
        "chunkproof audit chunks.jsonl compares with what was loaded; with --sources FOLDER, with the documents",
        present / (present + lost),
    )


def is_mojibake(text: str) -> bool:
    """Whether UTF-8 was read as another encoding (Ã© for é), or characters were replaced where it could not be read.

    A text that only quotes such characters has others that were read correctly.
    """
    runs = _NOT_ASCII.findall(text)
    misread = sum(len(run) for run in runs if any(_is_misread(run, codec) for codec in ("cp1252", "latin-1")))
    return "\N{REPLACEMENT CHARACTER}" in text or 0 < sum(map(len, runs)) <= 2 * misread


def _is_misread(run: str, codec: str) -> bool:
    try:
        return len(run.encode(codec).decode("utf-8")) < len(run)
    except UnicodeError:
        return False


def _check_texts(survey: _Survey) -> Iterator[CheckResult]:
    """Name chunks whose text was damaged or left behind before it was stored."""
    misread = "were read in the wrong encoding (such as Ã© for é)", "Read the sources as UTF-8 and load them again"
    bare = "are a heading without text", "Join each heading with the text below it when splitting"
    for name, ids, (what, remedy) in (("mojibake", survey.misread, misread), ("headings", survey.headings, bare)):
        if ids:
            more = f" and {len(ids) - MAX_NAMED:,} more" if len(ids) > MAX_NAMED else ""
            named = ", ".join(map(str, ids[:MAX_NAMED]))
            message = f"{len(ids):,} of {len(survey.point_ids):,} chunks {what}: {named}{more}"
            yield note(name, message, remedy, 1 - len(ids) / len(survey.point_ids))


def _check_copies(patient: _Patient, survey: _Survey) -> Iterator[CheckResult]:
    """Find texts that are stored more than once, and ids that several points share."""
    name, texts, ids, scanned = patient.collection.name, survey.texts, survey.own_ids, len(survey.point_ids)
    among = "" if scanned >= patient.description.points_count else f" among the first {scanned:,} points"
    copies = [copy_ids for copy_ids in texts.values() if len(copy_ids) > 1]
    if extra := [point_id for copy_ids in copies for point_id in copy_ids[1:]]:
        yield note(
            "duplicate texts",
            f"{len(copies):,} texts are stored more than once{among}, {len(extra):,} points too many: "
            "they take the place of other results. Was the collection loaded twice?",
            f'client.delete("{name}", points_selector={json.dumps(extra)})'
            if len(extra) <= MAX_LISTED
            else "Load it again into a new collection with ids made from the content: then a second run adds nothing",
            1 - len(extra) / scanned,
        )
    if shared := [value for value, count in ids.items() if count > 1]:
        paths = patient.collection.payloads.shared_paths
        where = f"{' and '.join(paths)} holds" if paths else f"{', '.join(shared[:MAX_NAMED])}:"
        yield note(
            "shared ids",
            f"{where} ids that several points share{among} ({len(shared):,} ids, {sum(ids[v] for v in shared):,} "
            "points): results show the point id instead",
            f"If the chunks have ids of their own, name the field: {_map_setting({'chunk_id': 'FIELD'})}",
            1 - sum(ids[value] for value in shared) / scanned,
        )


def _check_indexes(report: DoctorReport, patient: _Patient) -> Iterator[CheckResult]:
    services, points = patient.collection.services, patient.points
    if services.settings.qdrant_url is None:
        return
    indexed = patient.description.indexed_fields
    ids = {path for path in services.payloads.id_paths for point in points if id_at(path, point.payload)}
    wanted = dict.fromkeys(ids, "keyword")
    for name in FILTERED_FIELDS:
        path = report.mapping.get(name)
        if path and not any(lies_in_json_string(path, point.payload) for point in points):
            wanted[path] = "datetime" if name == "timestamp" else "keyword"
    missing = {path: schema for path, schema in sorted(wanted.items()) if path not in indexed}
    for path, schema in missing.items():
        what = "looking up chunks by id" if path in ids else "filtering on it"
        message = f"No index on {path}: {what} scans every point, and strict mode refuses it"
        remedy = _index_command(patient.collection.name, path, schema)
        yield note("payload index", message, remedy, 1 - len(missing) / len(wanted))
    if wanted and not missing:
        yield ok("payload index", "Ids and the usual filter fields are indexed")


def check_vector_index(description: Description) -> Iterator[CheckResult]:
    """Compare the indexed vectors with the points: a search compares all others one by one."""
    points, indexed = description.points_count, description.indexed_vectors_count
    if indexed < MOSTLY_INDEXED * points and (indexed or points >= MIN_INDEXED_POINTS):
        config = "optimizers_config=OptimizersConfigDiff(indexing_threshold=10000)"
        yield note(
            "vector index",
            f"{indexed:,} of {points:,} vectors are indexed ({indexed / points:.0%}); the rest is compared one by one",
            "Wait until the status is green, then lower the threshold: "
            f'client.update_collection("{description.name}", {config})',
            indexed / points,
        )


def _check_room(patient: _Patient) -> Iterator[CheckResult]:
    """Say whether functions without a server (Store=edge) would have room for the collection, by its sampled points."""
    if not patient.points:
        return
    payload = fmean(len(to_json(point.payload, fallback=str)) for point in patient.points)
    vectors = sum(FLOAT_BYTES * vector.size for vector in patient.description.vectors)
    size = round(patient.description.points_count * (payload + vectors * INDEX_SHARE))
    misfit = find_misfit(size, FunctionLimits())
    fits = f". {misfit}, to search it with Store=edge" if misfit else ": functions with Store=edge have room for it"
    yield ok("without a server", f"About {max(1, size >> 20):,} MB as a published collection{fits}")


def _check_sparse_vectors(patient: _Patient) -> Iterator[CheckResult]:
    """Check the IDF modifier of sparse vectors, and the length of texts that BM25 assumes."""
    sparse = patient.description.sparse_vectors
    for name, modifier in sparse.items():
        if modifier != "idf":
            config = f'{{"{name}": SparseVectorParams(modifier=Modifier.IDF)}}'
            yield note(
                "IDF modifier",
                f"The sparse vector {name} has no IDF modifier: BM25 would rate rare and common words alike "
                "(SPLADE needs none)",
                f'client.update_collection("{patient.collection.name}", sparse_vectors_config={config})',
            )
    if not sparse or not patient.texts:
        return
    average = fmean(len(text.split()) for text in patient.texts)
    if not DEFAULT_AVG_LEN / 2 <= average <= DEFAULT_AVG_LEN * 2:
        yield note(
            "BM25 avg_len",
            f"The sampled texts have {average:.0f} words on average; Qdrant's BM25 assumes {DEFAULT_AVG_LEN}",
            f'If BM25 made the sparse vectors: Document(model="qdrant/bm25", options={{"avg_len": {average:.0f}}})',
        )


def _check_suite_filters(suite: Suite, patient: _Patient) -> Iterator[CheckResult]:
    """Find the filters of a suite's cases on fields without an index."""
    missing: Counter[tuple[str, str]] = Counter()
    for case in suite.cases:
        if case.collection_name not in (None, patient.collection.name) or not case.filters:
            continue
        try:
            where = map_filters(parse_filters(case.filters), patient.collection)
        except InvalidParameterError:
            continue  # `suite lint` reports it
        for path, schema in required_indexes(where):
            if patient.description.indexed_fields.get(path) not in USABLE_INDEXES[schema]:
                missing[path, schema] += 1
    for (path, schema), cases in missing.items():
        filters = f"{cases} case{'s' * (cases > 1)} of {suite.name} filter{'s' * (cases == 1)}"
        remedy = _index_command(patient.collection.name, path, schema)
        yield note("suite filter", f"No index on {path}, on which {filters}", remedy)


def _check_search(patient: _Patient) -> Iterator[CheckResult]:
    """Search with the beginning of a stored text: a collection is ready when that works."""
    question = " ".join(patient.texts[0].split()[:10])[:200] if patient.texts else ""
    request = {"query_text": question or "test", "collection": patient.collection.name, "top_k": 1}
    try:
        one_request = patient.collection.services.collection(patient.collection.name, patient.collection.deadline)
        results = search(SearchQuery.parse(request), one_request).results
    except ChunkproofError as error:
        yield fail("search", f"A search for a stored text fails: {error}")
        return
    if question and not results:
        remedy = "Compare the models: set CHUNKPROOF_MODEL to the one that made the collection"
        yield fail("search", "A search for a stored text finds nothing", remedy)


def _suggest_settings(report: DoctorReport, services: Services) -> Iterator[str]:
    settings = services.settings
    if report.collection != settings.collection:
        yield f"CHUNKPROOF_COLLECTION={shlex.quote(report.collection or '')}"
    if settings.qdrant_url is not None:
        yield f"QDRANT_URL={settings.qdrant_url}"
    # A guess does not replace a text that can be read.
    is_guess = not report.is_embedded and report.shares.get("text")
    if rows := {name: row for name, row in report.proposed_map.items() if not (is_guess and name == "text")}:
        yield _map_setting(rows)
    if report.info and len(report.info.vectors) > 1 and (name := report.proposed_vector or settings.vector_name):
        yield f"CHUNKPROOF_VECTOR_NAME={shlex.quote(name)}"


def _map_setting(rows: Mapping[str, Any]) -> str:
    return f"CHUNKPROOF_PAYLOAD_MAP={shlex.quote(json.dumps(rows, ensure_ascii=False))}"


def _index_command(collection: str, field: str, schema: str) -> str:
    return f'create_payload_index("{collection}", field_name="{field}", field_schema="{schema}")'


MAX_DEPTH = 32
# Of a list, so many items are tried each by itself.
TRIED_ITEMS = 4
# A path, a hash, an id or encoded bytes: one word of characters that these are made of.
_IDENTIFIER = re.compile(r"[\w\-./:+=#?&%@~,;!$*()']*", re.ASCII)


def rank_text_fields(texts: Mapping[str, Sequence[str]], points: int) -> list[TextField]:
    """Return the fields that may hold the text of so many points, likeliest first; hashes and the like do not count."""
    fields = []
    for path, found in texts.items():
        words = [each for each in found if not _IDENTIFIER.fullmatch(each.strip()) and not name_encoding(each, path)]
        if words and not all(map(parse_json, words)):
            bare = [" ".join(_TAG.sub(" ", each).split()) for each in words]  # HTML is longer than its text
            chars, variety = int(median(map(len, bare))), (len(set(words)) - 1) / max(1, len(found) - 1)
            fields.append(TextField(path, chars, chars * (variety if found[1:] else 1.0) * len(found) / points))
    # Of copies, the one without tags, and not in lower case: models may read no case.
    fields.sort(key=lambda each: (-each.weight, any(t.islower() or _TAG.search(t) for t in texts[each.path])))
    return [each for each in fields if each.weight >= PLAUSIBLE * fields[0].weight]


def _texts_by_path(payloads: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for payload in payloads:
        for path, text in _read_texts(payload):
            texts.setdefault(path, []).append(text)
    return texts


def _read_texts(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield every text of a payload with a path that the payload map can read; those of a list are joined."""
    nested = parse_json(value) if isinstance(value, str) else value
    if isinstance(value, str) and value.strip():
        yield path, value
    if isinstance(nested, Mapping) and depth < MAX_DEPTH:
        for name, inner in nested.items():
            yield from _read_texts(inner, f"{path}.{name}" if path else name, depth + 1) if name else ()
    elif isinstance(nested, list) and depth < MAX_DEPTH:
        pieces: dict[str, list[str]] = {}
        for item in nested:
            for inner_path, piece in _read_texts(item, path if path.endswith("[]") else f"{path}[]", depth + 1):
                pieces.setdefault(inner_path, []).append(piece)
        yield from ((inner_path, "\n".join(some)) for inner_path, some in pieces.items())
        if len(nested) > 1 and "]" not in path:
            for index, item in enumerate(nested[:TRIED_ITEMS]):
                yield from _read_texts(item, f"{path}[{index}]", depth + 1) if not isinstance(item, list) else ()


def _find_unreadable(texts: Mapping[str, Sequence[str]], current: str | None, longest: int, points: int) -> str | None:
    """Say why no map reads the texts: each has a name of its own, or the current or the longest ones are encoded."""
    usual = [path for path, found in texts.items() if SCATTERED * len(found) >= points]
    shorter = max((len(text) for path in usual for text in texts[path]), default=0)
    few = [path for path, found in texts.items() if path not in usual and len(found[0]) > shorter]
    if current not in usual and len(few) >= LEAST_PIECES and len(few) * SCATTERED > points:
        return f"Each text has a name of its own ({', '.join(few[:MAX_NAMED])} …), which no payload map can list"
    for path, found in texts.items():
        name, count = Counter(name_encoding(text, path) for text in found).most_common(1)[0]
        is_all = longest < LEAST_TEXT if name == OPAQUE else median(map(len, found)) > 2.5 * longest
        if name and 2 * count > points and is_all and path == (current or path):
            return f"The texts in {path} are {name}: Chunkproof returns and compares what is stored and decodes nothing"
    return None


def name_encoding(text: str, path: str) -> str | None:
    """Name the encoding that hides sentences in a text: base64, hexadecimal, a list of words …; None if none does."""
    word = "".join(text.split())
    if len(word) < LEAST_ENCODED:
        return None
    pieces = text.split("\n") if "[]" in path else []
    longest = 1 if is_unspaced(word) else LEAST_ENCODED
    if len(pieces) >= LEAST_PIECES and all(len(piece.split()) < 2 and len(piece) <= longest for piece in pieces):
        return "lists of single words or characters"
    if word[0] == word[-1] == '"' and isinstance(parse_json(f"[{text}]"), list):
        return "JSON strings in quotation marks"
    digits = word.partition(";base64,")[2] or word
    padded = (digits.rstrip("=") + "=" * (-len(digits.rstrip("=")) % 4)).translate(_URL_SAFE)
    whole = word if word == text.strip() else ""
    decoders: dict[str, Callable[[], bytes]] = {
        "hexadecimal": lambda: bytes.fromhex(word),
        "base32": lambda: b32decode(word),
        "base64": lambda: b64decode(padded, validate=True),
        "base85": lambda: b85decode(whole),
        "Ascii85": lambda: a85decode(whole),
        "percent-encoded": lambda: unquote_to_bytes(whole) if "%" in whole else b"",
    }
    for name, decode in decoders.items():
        with suppress(ValueError):
            content = decode()
            if _is_sentence(content):
                return name
            if content.startswith(_COMPRESSED):
                return f"compressed and in {name}"
    return OPAQUE if _OPAQUE.fullmatch(whole) and not _SOURCE.fullmatch(whole) else None


def _is_sentence(content: bytes) -> bool:
    sentence = content[:MOST_DECODED].decode("utf-8", "replace")
    sentence = sentence.rstrip("\N{REPLACEMENT CHARACTER}") if len(content) >= MOST_DECODED else sentence
    is_text = "".join(sentence.split()).isprintable() and "\N{REPLACEMENT CHARACTER}" not in sentence
    return is_text and not _IDENTIFIER.fullmatch(sentence)
