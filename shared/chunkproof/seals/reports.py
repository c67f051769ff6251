"""Signatures of reports: a note beside the file, with its name, its size and its hash."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from chunkproof.base.errors import InvalidParameterError
from chunkproof.base.files import write_file
from chunkproof.seals.notes import BrokenNoteError, PublicKey, Signer, encode, open_note, sign_note
from chunkproof.seals.verification import Claim

FORMAT = "chunkproof-report/1"
SUFFIX = ".sig"


def sign_report(file: Path, signer: Signer) -> Path:
    """Write the signature of a report beside it, and return its path."""
    target = file.with_name(file.name + SUFFIX)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_file(target, sign_note(f"{FORMAT}\n{_digest(file)}\n{now}\n", [signer]))
    return target


def verify_report(file: Path, keys: Sequence[PublicKey]) -> Claim:
    """Check a report against its signature."""
    signature = file.with_name(file.name + SUFFIX)
    if not signature.exists():
        raise InvalidParameterError(f"{file} is neither a receipt, nor is there a signature {signature.name} beside it")
    try:
        text, signed = open_note(signature.read_text("utf-8"), keys)
        kind, digest, signed_at, _ = text.split("\n")
    except (BrokenNoteError, ValueError) as error:
        reason = str(error) if isinstance(error, BrokenNoteError) else "it is not the signature of a report"
        return Claim(name="report", verdict="refuted", detail=f"{signature.name}: {reason}")
    if kind != FORMAT or digest != _digest(file):
        return Claim(name="report", verdict="refuted", detail="the report is not the one that was signed")
    if not signed:
        return Claim(name="report", verdict="refuted", detail="it is not signed by any of the given keys")
    return Claim(name="report", verdict="proved", detail=f"signed by {signed[0].name} at {signed_at}")


def _digest(file: Path) -> str:
    return encode(sha256(file.read_bytes()).digest())
