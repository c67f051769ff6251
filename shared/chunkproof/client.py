"""Chunkproof for Python code: search, validate, run suites and audit, in a notebook, a script or a web framework."""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import SecretStr

from chunkproof.audit.audit_report import AuditReport
from chunkproof.audit.audit_run import Audit
from chunkproof.audit.ledger import AuditPlan, prepare
from chunkproof.audit.manifest_file import open_manifest
from chunkproof.audit.snapshot_file import Snapshot
from chunkproof.base.embedder_config import is_http_url, is_provider
from chunkproof.base.errors import InvalidParameterError, NotConfiguredError
from chunkproof.base.settings import Settings
from chunkproof.contract import CollectionInfo, RetrievalResponse, SearchQuery, ValidationResult
from chunkproof.embedders.embedder_port import Embedder
from chunkproof.net.secrets import check_key
from chunkproof.service.terminal import Connection, default_data_folder, local_backend, only_collection, open_connection
from chunkproof.suite.cases import Suite, TestCase, assign_collection, read_suite
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.outcome import TestCaseResult
from chunkproof.suite.runner import SERVER_JOBS, RunPlan, run_suite
from chunkproof.suite.suite_file import SuiteSource, read_source
from chunkproof.suite.suite_report import SuiteReport
from chunkproof.why.causes import WhyReport
from chunkproof.why.explainer import make_explainer
from chunkproof.why.probe import Question

FilePath = str | PathLike[str]
AnySuite = FilePath | Suite | Mapping[str, Any] | Iterable[TestCase | Mapping[str, Any]]
FORMER_NAMES = {"original": "original_text", "sha256": "original_sha256"}
AnyManifest = FilePath | Iterable[Mapping[str, Any]]


def connect(
    url: str | None = None,
    api_key: str | None = None,
    *,
    collection: str | None = None,
    data: FilePath | None = None,
    embedder: Embedder | Callable[[list[str]], Any] | str | None = None,
    settings: Settings | None = None,
) -> "Chunkproof":
    """Open a store and an embedder; use the result in a `with` block, or call its `close`.

    - `connect()` opens what the environment names (`QDRANT_URL`, `COHERE_API_KEY`, …), else the local store and model;
    - `connect("http://localhost:6333", "key")` opens the Qdrant server at this URL, with its key;
    - `connect(data="folder")` opens the embedded store in this folder.

    `collection` is the one to use where a call names none, by default the only one of the store. `embedder` is
    `"cohere"`, `"bedrock"`, `"openai"`, `"local"` or `"module:function"`; or a function that takes a list of texts and
    returns a vector for each; or an object with the methods of `chunkproof.embedders.embedder_port.Embedder`. It
    then serves every collection. Everything else comes from `settings`, else the environment.
    """
    if url is not None and data is not None:
        raise InvalidParameterError("Give url or data, not both: a server, or the folder of an embedded store")
    if url is not None and not is_http_url(url):
        raise InvalidParameterError("url must be an http or https URL")
    if api_key is not None and url is None:
        raise InvalidParameterError("api_key is the key of the server at url: give both")
    if api_key is not None:
        try:
            check_key("api_key", api_key)
        except NotConfiguredError as error:
            raise InvalidParameterError(*error.messages) from None
    if isinstance(embedder, str) and not is_provider(embedder):
        raise InvalidParameterError(
            "embedder must be cohere, bedrock, openai, local, module:function, a function or an object that embeds"
        )
    if collection is not None and not collection.strip():
        raise InvalidParameterError("collection cannot be empty")
    changes: dict[str, Any] = {}
    if url is not None or data is not None:
        changes["qdrant_url"] = url.rstrip("/") if url else None
    if url is not None:  # a key of the environment belongs to the server of the environment
        changes["qdrant_api_key"] = SecretStr(api_key) if api_key else None
    if collection is not None:
        changes["collection"] = collection
    in_force = (settings or Settings.from_env()).model_copy(update=changes)
    own: Embedder | None = None
    if isinstance(embedder, str):
        in_force = in_force.with_embedder(embedder)
    elif embedder is not None:
        from chunkproof.embedders.python_embedder import wrap_embedder

        own = wrap_embedder(embedder)
    with ExitStack() as stack:
        folder = Path() if in_force.qdrant_url else Path(data) if data is not None else default_data_folder()
        connection = stack.enter_context(open_connection(in_force, folder, own))
        return Chunkproof(connection, stack.pop_all())


class Chunkproof:
    """A store and an embedder, opened by `connect`, with the rules, limits and errors of the API."""

    def __init__(self, connection: Connection, opened: ExitStack) -> None:
        self._services = connection.services
        # Until the first call that names no collection: then a store with one collection decides.
        self._is_undecided = connection.services.settings.collection == Settings.model_fields["collection"].default
        self._backend = local_backend(connection.services)
        self._opened = opened

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._services.settings

    def search(
        self,
        query_text: str | Sequence[float] | SearchQuery | None = None,
        *,
        top_k: int | None = None,
        similarity_threshold: float | None = None,
        filters: Mapping[str, Any] | None = None,
        collection: str | None = None,
        **fields: Any,
    ) -> RetrievalResponse:
        """Return the chunks nearest to a text, a vector, or a whole query; the best five unless `top_k` is given.

        `similarity_threshold` is the least score of a result, inclusive. `fields` are any others of `POST /search`,
        such as `mode="hybrid"` or `with_payload=True`.
        """
        request: dict[str, Any] = {}
        query = fields.pop("query", None) if query_text is None else query_text
        if isinstance(query, SearchQuery):
            request = {name: value for name, value in json.loads(query.to_json()).items() if value is not None}
        elif isinstance(query, str):
            request["query_text"] = query
        else:
            try:
                request["query_vector"] = [float(value) for value in query]
            except (TypeError, ValueError):
                raise InvalidParameterError("query must be a text, a sequence of numbers or a SearchQuery") from None
        given = {"top_k": top_k, "similarity_threshold": similarity_threshold, "filters": filters}
        request |= {name: value for name, value in given.items() if value is not None} | fields
        return self._backend.search(self._in_collection(request, collection))

    def search_many(
        self,
        queries: Sequence[str | Mapping[str, Any]],
        *,
        top_k: int | None = None,
        similarity_threshold: float | None = None,
        filters: Mapping[str, Any] | None = None,
        collection: str | None = None,
        **fields: Any,
    ) -> tuple[RetrievalResponse, ...]:
        """Return a response for each of up to 32 queries, in their order, with one embedding call for all of them.

        A query is a text, or a mapping with fields of `POST /search`; the arguments apply to all queries that do not
        have their own. What fails one query does not fail the others: its response has the `status` "error".
        """
        # A str is a sequence too: unchanged, it is refused like any other value that is not a list.
        listed = queries if isinstance(queries, str) else [dict(o) if isinstance(o, Mapping) else o for o in queries]
        request: dict[str, Any] = {"queries": listed}
        given = {"top_k": top_k, "similarity_threshold": similarity_threshold, "filters": filters}
        request |= {name: value for name, value in given.items() if value is not None} | fields
        return self._backend.search(self._in_collection(request, collection)).responses or ()

    def validate(
        self,
        chunk_id: str | int,
        original_text: str | None = None,
        *,
        original_sha256: str | None = None,
        strict: bool = False,
        collection: str | None = None,
        **former: str | None,
    ) -> ValidationResult:
        """Compare a stored chunk with its original, byte for byte: a text, its SHA-256, else the chunk's own hash."""
        request: dict[str, Any] = {"chunk_id": str(chunk_id) if isinstance(chunk_id, int) else chunk_id}
        given = {"original_text": original_text, "original_sha256": original_sha256, "strict": strict or None}
        for name, value in former.items():
            canonical = FORMER_NAMES.get(name, name)
            if given.get(canonical) is not None:
                raise InvalidParameterError(f"{canonical} and {name} are the same argument: give one of them")
            given[canonical] = value
        request |= {name: value for name, value in given.items() if value is not None}
        return self._backend.validate(self._in_collection(request, collection))

    def collection(self, name: str | None = None) -> CollectionInfo:
        """Describe a collection: its vectors and counts, and how its payloads are read."""
        return self._backend.collection(name or self._default_collection())

    def run_suite(
        self,
        suite: AnySuite,
        *,
        collection: str | None = None,
        top_k: int | None = None,
        repeat: int = 1,
        exact: bool = False,
        on_result: Callable[[TestCaseResult], None] | None = None,
    ) -> SuiteReport:
        """Run a suite, judge the success criteria and diagnose the cases that failed.

        `suite` is a YAML or JSON file, a BEIR folder, a dict like such a file, or test cases. `exact` also searches
        without the index, and reports what the index misses.
        """
        if repeat < 1:
            raise InvalidParameterError("repeat must be at least 1")
        read, source = _read_suite(suite, top_k)
        served = self.settings.qdrant_url is not None
        plan = RunPlan(
            read,
            source,
            assign_collection(read.cases, collection or read.collection or self._default_collection()),
            jobs=SERVER_JOBS if served else 1,  # an embedded store has no time to wait for: more threads save little
            repeat=repeat,
            latency_target_ms=self.settings.latency_target_ms,
            judge_latency=served,
        )
        return run_suite(
            plan,
            self._backend,
            exact_search=self._backend.search_exactly if exact else None,
            on_result=on_result,
            diagnoser=Diagnoser(make_explainer(self._backend)),
        )

    def audit(
        self,
        manifest: AnyManifest,
        *,
        collection: str | None = None,
        partial: bool = False,
        sample: int | None = None,
        vectors: int | bool | None = None,
    ) -> AuditReport:
        """Compare every chunk of a manifest with what is stored, byte for byte, and list what else is stored.

        `manifest` is a file, or its lines as dicts with `chunk_id` and `original_text` or `original_sha256`.
        `partial` and `sample` read only the chunks that are listed or drawn; `vectors` embeds that many texts again
        (True: all) and compares the vectors.
        """
        for name, count in (("sample", sample), ("vectors", vectors)):
            if count is not None and not isinstance(count, bool) and count < 1:
                raise InvalidParameterError(f"{name} must be at least 1")
        checked = (0 if vectors else None) if isinstance(vectors, bool) else vectors
        with tempfile.TemporaryDirectory() as folder, _open_manifest(manifest) as (lines, name):
            where = self._services.collection(collection or self._default_collection()).name
            audit = Audit(
                Path(folder), self._services, where, AuditPlan(by_ids=partial, sample=sample, vectors=checked)
            )
            audit.check()
            return audit.run(audit.start(prepare(lines, name, Path(folder))))

    def why(
        self,
        query_text: str = "",
        expected: str = "",
        *,
        snapshot: FilePath | None = None,
        collection: str | None = None,
        **fields: Any,
    ) -> WhyReport:
        """Find out why a search does not return what is expected, and the smallest change that brings it back.

        `expected` is a chunk, point or document id, a URL, or a text that a chunk has. `snapshot` is a file of
        `chunkproof snapshot` from before. `fields` are those of `POST /search`: `top_k`, `filters`, `mode` and others.
        Nothing is written.
        """
        query_text, expected = query_text or fields.pop("query", ""), expected or fields.pop("expect", "")
        if not expected:
            raise InvalidParameterError("expected is required: an id, a URL, or a text that the chunk has")
        before = Snapshot(Path(snapshot)) if snapshot is not None else None
        question = Question(self._in_collection({"query_text": query_text, **fields}, collection), expected, before)
        return make_explainer(self._backend).explain(question).report

    async def asearch(
        self, query_text: str | Sequence[float] | SearchQuery | None = None, **fields: Any
    ) -> RetrievalResponse:
        """Search in a thread, with the arguments of `search`."""
        return await asyncio.to_thread(self.search, query_text, **fields)

    async def asearch_many(
        self, queries: Sequence[str | Mapping[str, Any]], **fields: Any
    ) -> tuple[RetrievalResponse, ...]:
        """`search_many`, without blocking the event loop."""
        return await asyncio.to_thread(self.search_many, queries, **fields)

    async def avalidate(self, chunk_id: str | int, original_text: str | None = None, **fields: Any) -> ValidationResult:
        """Validate in a thread, with the arguments of `validate`."""
        return await asyncio.to_thread(self.validate, chunk_id, original_text, **fields)

    async def acollection(self, name: str | None = None) -> CollectionInfo:
        """Describe a collection in a thread."""
        return await asyncio.to_thread(self.collection, name)

    def _in_collection(self, request: dict[str, Any], collection: str | None) -> dict[str, Any]:
        """Return the request with its collection: the given one, its own, else the default."""
        if collection is None and ("collection" in request or "collection_name" in request):
            return request
        return request | {"collection": self._default_collection() if collection is None else collection}

    def _default_collection(self) -> str:
        if self._is_undecided:
            if only := only_collection(self._services):
                self._services.settings = self.settings.model_copy(update={"collection": only})
            self._is_undecided = False
        return self.settings.collection

    def close(self) -> None:
        """Close the store and the connections."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"<Chunkproof {self._services.store.host}, collection {self.settings.collection}>"


def _read_suite(suite: AnySuite, top_k: int | None) -> tuple[Suite, str]:
    """Return the suite and what its report calls its source."""
    if isinstance(suite, str | PathLike):
        return read_source(SuiteSource(Path(suite), top_k=top_k)).suite, fspath(suite)
    document: dict[str, Any]
    if isinstance(suite, Suite):
        document = suite.model_dump(mode="json", exclude_unset=True)
    elif isinstance(suite, Mapping):
        document = dict(suite)
    else:
        document = {"name": "cases", "cases": [_as_document(case) for case in suite]}
    if top_k is not None:
        document["defaults"] = {**document.get("defaults", {}), "top_k": top_k}
    read = read_suite(document)
    return read, read.name


def _as_document(case: TestCase | Mapping[str, Any]) -> dict[str, Any]:
    """Return a case as a suite file has it, without the result of an earlier run."""
    if not isinstance(case, TestCase):
        return dict(case)
    return case.model_dump(mode="json", include=set(TestCase.model_fields), exclude_unset=True)


@contextmanager
def _open_manifest(manifest: AnyManifest) -> Iterator[tuple[Iterable[bytes], str]]:
    """Yield the lines of a manifest and its name."""
    if isinstance(manifest, str | PathLike):
        with open_manifest(Path(manifest)) as lines:
            yield lines, Path(manifest).name
        return
    yield (json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in manifest), "manifest"
