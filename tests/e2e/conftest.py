"""Fixtures that run commands and return exit code, standard output and standard error."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chunkproof.stores.edge_folder import copy_folder
from chunkproof_cli.loading import write_chunks
from chunkproof_cli.local.corpus import sample_chunks
from chunkproof_cli.main import cli, main

from support.chromium import Chromium, NoBrowserError, chromium, skip_without_browser
from support.commands import Command, Run


@pytest.fixture
def chunkproof(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs a command in this process; each test has an embedded store of its own."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["chunkproof", *map(str, arguments)])
        capsys.readouterr()
        with monkeypatch.context() as meanwhile:
            # A command has no Lambda handler loaded; one that a test loaded logs to a stream of its own.
            meanwhile.setattr(logging.getLogger("chunkproof"), "handlers", [])
            try:
                main()
                code = 0
            except SystemExit as exit_:
                code = exit_.code if isinstance(exit_.code, int) else 0
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def handbook_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample handbook as chunks.jsonl, its first thirty chunks and the text-hygiene document."""
    chunks = list(sample_chunks())
    few = [*chunks[:30], *(chunk for chunk in chunks if chunk["document_id"] == "vectordb-text-hygiene")]
    file = tmp_path_factory.mktemp("handbook") / "chunks.jsonl"
    write_chunks(file, iter(few))
    return file


@pytest.fixture(scope="session")
def loaded_handbook(handbook_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder where the handbook was loaded, to be copied."""
    folder = tmp_path_factory.mktemp("loaded") / "chunkproof"
    load = ["load", str(handbook_file), "--collection", "handbook", "--data", str(folder)]
    cli.main(load, standalone_mode=False)
    return folder


@pytest.fixture
def handbook(chunkproof: Command, loaded_handbook: Path, tmp_path: Path) -> Command:
    """Runs a command where the handbook is loaded."""
    copy_folder(loaded_handbook, tmp_path / "data-home" / "chunkproof")
    return chunkproof


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An AWS account with nothing in it."""
    from moto import mock_aws  # half a second to import: not for every test file

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    try:
        with chromium() as running:
            yield running
    except NoBrowserError as reason:
        skip_without_browser(reason)
