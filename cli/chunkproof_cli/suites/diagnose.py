"""Diagnosis of failed cases on the command line."""

import shlex

from chunkproof.retrieval.backend import Backend
from chunkproof.runtime.local import default_data_folder
from chunkproof.settings import Settings
from chunkproof.suite.diagnosis import Diagnoser
from chunkproof.suite.store_evidence import collect_evidence
from chunkproof_cli.options import Options
from chunkproof_cli.retrievers.backend import RetrieverBackend


def make_diagnoser(backend: Backend, given: Options, source: str) -> Diagnoser:
    """Return a diagnoser whose suggested commands use the same store or stack; of a retriever, its collection's."""
    where = options_of_store(given)
    if isinstance(backend, RetrieverBackend):
        evidence = collect_evidence(backend.store) if backend.store is not None else None
        return Diagnoser(evidence, source, where, retriever=backend.name)
    return Diagnoser(collect_evidence(backend), source, where)


def options_of_store(given: Options) -> str:
    """Return the options with which another command reaches the same store or stack."""
    if given.api:
        return f"--api {shlex.quote(given.api)}"
    if Settings.from_env().qdrant_url is None and given.data != default_data_folder():
        return f"--data {shlex.quote(str(given.data))}"
    return ""
