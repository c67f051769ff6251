"""The browser console of `chunkproof serve`: its page, and the routes that it needs beside the public API.

The page calls `POST /search`, `POST /validate-chunk` and `GET /collections/{name}` as any client does. The routes below
`/console/` exist in the local gateway alone; each does what a command does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from chunkproof import CONTRACT_VERSION, __version__
from chunkproof.base.errors import ForbiddenError, InvalidParameterError, NotConfiguredError
from chunkproof.base.files import write_file
from chunkproof.base.request import Deadline
from chunkproof.collection.services import Collection
from chunkproof.contract.model import Items, Model, Request, display_name
from chunkproof.service.api import Api, Call, responses
from chunkproof.service.container import services
from chunkproof.service.terminal import list_collections, local_backend, new_deadline
from chunkproof.why.causes import WhyReport

CONSOLE_PATH = "/console/"
# Of a suite that the console wrote: it rewrites no other file.
MARKER = "# Written by the console of `chunkproof serve`, which rewrites the whole file.\n"
MAP_POINTS, MOST_STRIPS, MOST_REPORTS = 300, 60, 100
# A suite of a quarter of a million characters has fewer values.
MOST_VALUES = 50_000
TINY = 1e-12
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
# No other host, no markup from text: the browser itself refuses both.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class ConsoleInfo(Model):
    """What the frame of the console shows: the store, the model, the collections and the latency target."""

    version: str
    contract_version: str
    store: str = Field(description="Host or folder of the store")
    embedding_model: str
    collection: str = Field(description="The collection of requests that name none")
    collections: Items[str]
    latency_target_ms: float
    rerank: bool = Field(description="Whether a reranker is configured")
    suite_file: str | None = Field(description="Where judgments are saved; null without --suite")


class DoctorFindings(Model):
    """The report of `chunkproof doctor --json`."""

    report: dict[str, JsonValue]


class MapPoint(Model):
    """One chunk on the map of a collection."""

    x: float
    y: float
    chunk_id: str
    document_id: str | None
    title: str | None


class VectorMap(Model):
    """A sample of a collection's vectors, projected on their two principal components."""

    collection: str
    points_count: int
    sampled: int
    variance: float = Field(description="Share of the sample's variance that the two axes show, 0 to 1")
    points: Items[MapPoint]


class DocumentStrip(Model):
    """The chunks of a document in their order, and the positions that no chunk has."""

    document_id: str
    title: str | None
    chunks: Items[tuple[int, str]] = Field(description="Position and id of each chunk")
    missing: Items[int]


class DocumentStrips(Model):
    """Documents of a collection as strips of chunks, those with holes first."""

    points_count: int
    read: int = Field(description="Chunks that were read; with fewer than all, holes are not looked for")
    documents_total: int
    missing_total: int
    documents: Items[DocumentStrip]


class WhyRequest(Request):
    """A search, and the chunk that it should find."""

    request: dict[str, JsonValue] = Field(description="A request as POST /search takes it")
    expected: str = Field(description="A chunk, point or document id, a URL, or a text that a chunk has")


class ReportFiles(Request):
    """Canonical reports, each as the text of its file."""

    reports: tuple[str, ...] = Field(
        (), strict=False, max_length=MOST_REPORTS, description="Several suite reports become one, with the trend"
    )
    files: tuple[str, ...] = Field(
        (), strict=False, max_length=MOST_REPORTS, description="Names of files in the folder of `--reports`"
    )


class ReportNames(Model):
    """The reports in the folder of `serve --reports`, the latest first."""

    folder: str | None
    files: Items[str]


class ReportBodies(Model):
    """Reports as blocks: title, verdicts, summary and sections, each block with its `kind`."""

    bodies: Items[dict[str, JsonValue]]


class SuiteText(Request):
    """A suite as YAML."""

    yaml: str = Field(max_length=250_000)


class SavedSuite(Model):
    """The suite file of `serve --suite`, as text and as the document that the text holds."""

    file: str
    yaml: str
    document: JsonValue = None


class ConsoleApi(Api):
    """The console's own routes. They are not in the log, which is about the requests to the service."""

    def _emit_telemetry(self, call: Call) -> None:
        pass

    def open_collection(self, name: object) -> Collection:
        """Return a collection; refuse where tenants are configured, because these routes read all chunks."""
        settings = services().settings
        if settings.tenant_field is not None or settings.tenant_claim is not None:
            raise ForbiddenError("The console's own routes are off where tenants are configured")
        return self.collection(name if isinstance(name, str) and name else None)


def find_asset(path: str) -> dict[str, Any] | None:
    """Return the response for the page, its scripts and its stylesheet; None for any other path."""
    page, name = files(__package__) / "page", path.removeprefix(CONSOLE_PATH)
    file = page / "index.html" if path == "/" else page / "console" / name
    kind = _KINDS.get(Path(file.name).suffix)
    if kind is None or (path != "/" and (name == path or {*"/\\"} & {*name})) or not file.is_file():
        return None
    headers = {"content-type": f"{kind}; charset=utf-8", **_HEADERS}
    return {"statusCode": 200, "headers": headers, "body": file.read_text("utf-8"), "isBase64Encoded": False}


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a request comes from the console itself, or from a client that is no browser and sends no origin."""
    return not origin or origin.partition("://")[2] == host


def check_suite_file(file: Path) -> None:
    """Refuse a file that the console did not write, and one that cannot be written."""
    if not file.parent.is_dir() or file.is_dir():
        raise InvalidParameterError(f"--suite {file}: there is no such folder to write to")
    if file.exists() and not file.read_text("utf-8", "replace").startswith(MARKER):
        raise InvalidParameterError(f"--suite {file} was not written by the console; name a new file")


def build_console(suite_file: Path | None = None, reports: Path | None = None) -> Api:
    """Make the routes below `/console/`; judgments are saved to the suite file, reports are read from the folder."""
    app = ConsoleApi()

    @app.get("/console/about", summary="What is served", responses=responses(ConsoleInfo))
    def get_about() -> ConsoleInfo:
        """The store, the model, the collections and the latency target."""
        own = services()
        settings, allowed = own.settings, own.settings.allowed_collections
        names = [n for n in list_collections(own) if not allowed or n in {*allowed, settings.collection}]
        return ConsoleInfo(
            version=__version__,
            contract_version=CONTRACT_VERSION,
            store=own.store.host,
            embedding_model=own.embedder.model if own.embedder else "none",
            collection=settings.collection,
            collections=tuple(names),
            latency_target_ms=float(settings.latency_target_ms),
            rerank=own.reranker is not None,
            suite_file=str(suite_file) if suite_file else None,
        )

    @app.get("/console/doctor", summary="Check a collection: chunkproof doctor", responses=responses(DoctorFindings))
    def get_doctor(collection: str = "") -> DoctorFindings:
        """Embed a sample of the chunks again, and check vectors, payloads, copies and indexes."""
        from chunkproof_cli.doctor.collection_checks import check_collection

        own, name = services(), app.open_collection(collection).name
        return DoctorFindings(report=check_collection(name, own, lambda: new_deadline(own.settings)).to_json())

    @app.get("/console/map", summary="Project a sample of the vectors on a plane", responses=responses(VectorMap))
    def get_map(collection: str = "") -> VectorMap:
        """The first two principal components of up to 300 vectors."""
        return draw_map(app.open_collection(collection))

    @app.get("/console/documents", summary="List chunks by document", responses=responses(DocumentStrips))
    def get_documents(collection: str = "") -> DocumentStrips:
        """Documents as strips of chunks; holes are positions that no chunk has."""
        return list_documents(app.open_collection(collection))

    @app.post("/console/why", summary="Why a chunk is not found: chunkproof why", responses=responses(WhyReport))
    def post_why(request: WhyRequest) -> WhyReport:
        """Repeat the search with one change after another; the smallest that suffices names the cause."""
        from chunkproof.why.explainer import Explainer
        from chunkproof.why.probe import Question

        name = app.open_collection(request.request.get("collection")).name
        half = Deadline(app.deadline.remaining_ms() / 2)  # each change that it has begun is still evaluated
        question = Question({**request.request, "collection": name}, request.expected, deadline=half)
        return Explainer(local_backend(services())).explain(question).report

    @app.post("/console/report", summary="Describe reports: chunkproof report", responses=responses(ReportBodies))
    def post_report(request: ReportFiles) -> ReportBodies:
        """Reports of any kind as the blocks that their pages are made of."""
        texts = [*request.reports, *(_read_report(reports, name) for name in dict.fromkeys(request.files))]
        return ReportBodies(bodies=tuple(describe_reports(texts)))

    @app.get("/console/reports", summary="List the reports that can be opened", responses=responses(ReportNames))
    def get_reports() -> ReportNames:
        """The JSON files in the folder that `serve --reports` names."""
        found = sorted(reports.glob("*.json"), key=lambda file: -file.stat().st_mtime) if reports else []
        return ReportNames(folder=str(reports) if reports else None, files=tuple(file.name for file in found))

    @app.get("/console/suite", summary="Read the judgments saved so far", responses=responses(SavedSuite))
    def get_suite() -> SavedSuite:
        """The file that `serve --suite` names; empty until the first judgment."""
        file = _require(suite_file)
        text = file.read_text("utf-8") if file.is_file() else ""
        return SavedSuite(file=str(file), yaml=text, document=_read_document(text) if text else None)

    @app.post("/console/suite", summary="Save judgments as a suite", responses=responses(SavedSuite))
    def post_suite(draft: SuiteText) -> SavedSuite:
        """Write the file if `chunkproof suite run` can read it."""
        from chunkproof.suite.cases import read_suite

        file = _require(suite_file)
        if not draft.yaml.startswith(MARKER):
            raise InvalidParameterError("yaml must begin with the console's own first line")
        document = _read_document(draft.yaml)
        read_suite(document)
        check_suite_file(file)
        write_file(file, draft.yaml)
        return SavedSuite(file=str(file), yaml=draft.yaml, document=document)

    return app.prime()


def _require(file: Path | None) -> Path:
    if file is None:
        raise NotConfiguredError("No suite file is named: start chunkproof serve with --suite FILE")
    return file


def _read_report(folder: Path | None, name: str) -> str:
    """Read a report by the name that `GET /console/reports` lists: no other file can be read."""
    if folder is None:
        raise NotConfiguredError("No folder of reports is named: start chunkproof serve with --reports FOLDER")
    file = next((file for file in folder.glob("*.json") if file.name == name), None)
    if file is None:
        raise InvalidParameterError(f"There is no report {display_name(name)} in {folder}")
    return file.read_text("utf-8", "replace")


def _read_document(text: str) -> Any:
    from chunkproof.suite.yaml_document import read_yaml

    return read_yaml(text, "suite", max_values=MOST_VALUES).value


def list_documents(collection: Collection) -> DocumentStrips:
    """Group the first chunks of a collection by document; where all were read, the holes are known."""
    from chunkproof.search.neighbours import find_place
    from chunkproof_cli.doctor.collection_checks import MAX_SCANNED, find_holes

    points = list(islice((point for page in collection.scan() for point in page.points), MAX_SCANNED))
    payloads, total = collection.payloads, collection.describe().points_count
    found: dict[str, list[tuple[int, str]]] = {}
    titles: dict[str, str | None] = {}
    for point in points:
        if place := find_place(point.payload, payloads):
            document = str(place.document)
            found.setdefault(document, []).append((int(place.position), payloads.id_of(point)))
            titles.setdefault(document, _as_text(payloads.value("document_title", point.payload)))
    is_whole = len(points) >= total
    holes = {each: find_holes(at for at, _ in chunks) if is_whole else [] for each, chunks in found.items()}
    return DocumentStrips(
        points_count=total,
        read=len(points),
        documents_total=len(found),
        missing_total=sum(map(len, holes.values())),
        documents=tuple(
            DocumentStrip(
                document_id=each, title=titles[each], chunks=tuple(sorted(found[each])), missing=tuple(holes[each])
            )
            for each in sorted(found, key=lambda each: (-len(holes[each]), titles[each] or each))[:MOST_STRIPS]
        ),
    )


def draw_map(collection: Collection) -> VectorMap:
    """Project the first vectors of a collection on their principal components."""
    page = collection.first_points(MAP_POINTS, with_vector=collection.vector.name)
    points = [point for point in page.points if point.vector]
    places, variance = project([point.vector for point in points if point.vector])
    payloads = collection.payloads
    return VectorMap(
        collection=collection.name,
        points_count=collection.describe().points_count,
        sampled=len(points),
        variance=variance,
        points=tuple(
            MapPoint(
                x=x,
                y=y,
                chunk_id=payloads.id_of(point),
                document_id=_as_text(payloads.value("document_id", point.payload)),
                title=_as_text(payloads.value("document_title", point.payload)),
            )
            for point, (x, y) in zip(points, places, strict=True)
        ),
    )


def project(vectors: Sequence[Sequence[float]]) -> tuple[list[tuple[float, float]], float]:
    """Return each vector's place on the first two principal components, and the share of the variance they show."""
    import numpy as np  # a tenth of a second to import

    if not vectors:
        return [], 0.0
    rows = np.asarray(vectors, dtype=np.float64)
    left, sizes, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    places = np.zeros((len(rows), 2))
    places[:, : min(2, len(sizes))] = (left * sizes)[:, :2]
    shown, total = float((sizes[:2] ** 2).sum()), float((sizes**2).sum())
    return [(x, y) for x, y in places.tolist()], min(1.0, shown / total) if total > TINY else 0.0


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def describe_reports(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the blocks of each report; several reports of suites are one body, the latest with its trend."""
    from chunkproof_cli.reports import outputs

    kinds = (outputs.SUITE, *outputs.RECOGNIZED, outputs.WHY, outputs.CONFIGURATIONS, outputs.LATENCY)
    suites = []
    for number, text in enumerate(texts, 1):
        if (found := outputs.find_report(text, kinds)) is None:
            raise InvalidParameterError(
                f"File {number} is not a canonical report of a suite, an audit, a diff, an absence, a comparison, "
                "latency or why: write one with -o report.json"
            )
        kind, report = found
        if kind is outputs.SUITE:
            suites.append(report)
        else:
            yield _write_block(kind.to_body(report))
    if suites:
        *earlier, latest = sorted(suites, key=lambda each: each.validation.started_at)
        yield _write_block(outputs.SUITE.to_body(latest, earlier))


def _write_block(value: Any) -> Any:
    """Write blocks as JSON: what a page shows, each with its kind; a drawing with its picture."""
    from chunkproof_cli.reports.blocks import Block, Cell, Drawing, Medium, visible
    from chunkproof_cli.reports.to_html import draw_svg

    if isinstance(value, Cell):
        return {"text": str(value), "tone": value.tone.value}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        shown = [f.name for f in fields(value) if f.name not in ("media", "spec")]
        picture = {"svg": draw_svg(value.spec)} if isinstance(value, Drawing) else {}
        return {"kind": type(value).__name__, **{n: _write_block(getattr(value, n)) for n in shown}, **picture}
    if isinstance(value, list | tuple):
        return [_write_block(one) for one in value if not isinstance(one, Block) or visible([one], Medium.PAGE)]
    return value
