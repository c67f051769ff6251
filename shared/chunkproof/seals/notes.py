"""Keys, signed notes (C2SP signed-note) and checkpoints (C2SP tlog-checkpoint).

A key is an Ed25519 key in a file, or a key of AWS KMS: `kms:KEY-ID`. Signatures of type 1 are Ed25519; of type 2, ECDSA
on P-256 with SHA-256 in DER, and the public key is a DER SubjectPublicKeyInfo.
"""

import os
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from chunkproof.base.errors import InvalidParameterError, NotConfiguredError, UnavailableError
from chunkproof.base.files import write_new_file

ED25519, P256 = 1, 2
KMS = "kms:"
DASH = "\N{EM DASH} "
_NAME = re.compile(r"[^\s+\x00-\x1f]{1,200}")


class BrokenNoteError(ValueError):
    """A text that is not a signed note or not a checkpoint; the message says why."""


def encode(data: bytes) -> str:
    """Return the base64 of some bytes."""
    return b64encode(data).decode()


def decode(text: Any) -> bytes:
    """Read base64 that is written as `encode` writes it; `BrokenNoteError` for anything else."""
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError, TypeError):
        raise BrokenNoteError(f"{str(text)[:20]!r} is not base64") from None
    if encode(data) != text:
        raise BrokenNoteError(f"{str(text)[:20]!r} is not base64 as it is usually written")
    return data


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A named public key; its text is a C2SP vkey, `NAME+ID+BASE64`."""

    name: str
    kind: int
    data: bytes

    @property
    def id(self) -> bytes:
        """The four bytes by which signatures name it."""
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.data).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{encode(bytes([self.kind]) + self.data)}"

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read a vkey."""
        parts = text.strip().split("+", 2)
        try:
            data = decode(parts[2])
            key = cls(parts[0], data[0], data[1:])
            if key.id.hex() == parts[1] and key.kind in (ED25519, P256):
                return key
        except (IndexError, BrokenNoteError):
            pass
        raise InvalidParameterError(
            f"{text.strip()[:60]!r} is not a public key, NAME+ID+BASE64 as `chunkproof key` prints"
        )

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's, of this content."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        try:
            if self.kind == ED25519:
                Ed25519PublicKey.from_public_bytes(self.data).verify(signature, content)
                return True
            key = load_der_public_key(self.data)
            if isinstance(key, EllipticCurvePublicKey):
                key.verify(signature, content, ECDSA(SHA256()))
                return True
        except (InvalidSignature, ValueError):
            pass
        return False


class Signer(Protocol):
    """A private key."""

    public: PublicKey

    def sign(self, content: bytes) -> bytes:
        """Return its signature."""
        ...


class FileSigner:
    """An Ed25519 key from a file of `make_key`."""

    def __init__(self, path: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            parts = path.read_text("utf-8").strip().split("+", 4)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidParameterError(f"The key {path} cannot be read: {getattr(error, 'strerror', error)}") from None
        try:
            if parts[:2] != ["PRIVATE", "KEY"]:
                raise BrokenNoteError("it does not begin with PRIVATE+KEY")
            seed = decode(parts[4])
            self._key = Ed25519PrivateKey.from_private_bytes(seed[1:])
            self.public = PublicKey(parts[2], ED25519, self._key.public_key().public_bytes_raw())
            if seed[0] != ED25519 or self.public.id.hex() != parts[3]:
                raise BrokenNoteError("its parts do not belong together")
        except (IndexError, ValueError):  # whose message may show the key
            raise InvalidParameterError(f"{path} is not a private key of `chunkproof key`") from None

    def sign(self, content: bytes) -> bytes:
        """Return its signature."""
        return self._key.sign(content)


class KmsSigner:
    """A key of AWS KMS that never leaves it: ECC_NIST_P256, or ECC_NIST_EDWARDS25519 where a region has it."""

    def __init__(self, key_id: str, name: str | None = None) -> None:
        self._id = key_id
        answer = self._call("get_public_key", KeyId=key_id)
        der, spec = bytes(answer["PublicKey"]), answer.get("KeySpec") or answer.get("CustomerMasterKeySpec")
        if spec not in ("ECC_NIST_P256", "ECC_NIST_EDWARDS25519"):
            raise InvalidParameterError(f"KMS key {key_id} is {spec}: make one of ECC_NIST_P256, SIGN_VERIFY")
        is_edwards = spec == "ECC_NIST_EDWARDS25519"
        self._algorithm = "ED25519_SHA_512" if is_edwards else "ECDSA_SHA_256"
        own_name = name or "kms-" + re.sub(r"[^A-Za-z0-9.-]", "-", key_id.rsplit("/", 1)[-1])
        self.public = PublicKey(own_name, ED25519, der[-32:]) if is_edwards else PublicKey(own_name, P256, der)

    def sign(self, content: bytes) -> bytes:
        """Return its signature; KMS takes at most 4,096 bytes, and all notes are shorter."""
        answer = self._call(
            "sign", KeyId=self._id, Message=content, MessageType="RAW", SigningAlgorithm=self._algorithm
        )
        return bytes(answer["Signature"])

    def _call(self, operation: str, **fields: Any) -> Any:
        from chunkproof.net.s3 import aws_client

        try:
            return getattr(aws_client("kms"), operation)(**fields)
        except Exception as error:  # noqa: BLE001 - boto3's own, which are not imported for this
            code = getattr(error, "response", {}).get("Error", {}).get("Code") or type(error).__name__
            raise UnavailableError(f"KMS refused {operation} with key {self._id} ({code})") from None


def open_signer(key: str | None) -> Signer:
    """Return the key in a file, or `kms:KEY-ID`, or `kms:KEY-ID=NAME`."""
    if not key:
        raise NotConfiguredError("No key to sign with: make one with `chunkproof key NAME`, and give it with --key")
    if not key.startswith(KMS):
        return FileSigner(Path(key))
    key_id, _, name = key.removeprefix(KMS).partition("=")
    return KmsSigner(key_id, name or None)


def make_key(name: str, path: Path) -> PublicKey:
    """Write a new key to a file that only this user can read, and its public key beside it, with `.pub`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not _NAME.fullmatch(name):
        raise InvalidParameterError("The name of a key has 1 to 200 characters, without spaces and +")
    key = Ed25519PrivateKey.generate()
    public = PublicKey(name, ED25519, key.public_key().public_bytes_raw())
    secret = encode(bytes([ED25519]) + key.private_bytes_raw())
    before = os.umask(0o077)
    try:
        write_new_file(path, f"PRIVATE+KEY+{name}+{public.id.hex()}+{secret}\n")
    finally:
        os.umask(before)
    public_path = path.with_name(path.name + ".pub")
    public_path.write_text(f"{public}\n", "utf-8")
    return public


def sign_note(text: str, signers: Sequence[Signer]) -> str:
    """Return the text with a signature by each key."""
    content = text.encode()
    lines = [f"{DASH}{s.public.name} {encode(s.public.id + s.sign(content))}\n" for s in signers]
    return text + "\n" + "".join(lines)


def open_note(note: str, keys: Sequence[PublicKey]) -> tuple[str, list[PublicKey]]:
    """Return the text of a note, and those of the keys that signed it; a wrong signature of a given key is an error."""
    text, blank, signatures = note.rpartition("\n\n")
    if not blank or not signatures.endswith("\n"):
        raise BrokenNoteError("it is not a signed note")
    text += "\n"
    signed: list[PublicKey] = []
    for line in signatures.splitlines():
        name, _, value = line.removeprefix(DASH).partition(" ")
        if not line.startswith(DASH) or not name:
            raise BrokenNoteError("a line of its signatures is damaged")
        data = decode(value)
        for key in keys:
            if key.name == name and key.id == data[:4]:
                if not key.has_signed(text.encode(), data[4:]):
                    raise BrokenNoteError(f"the signature of {name} is not of this text")
                signed.append(key)
    return text, signed


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Size and root of a tree; `info` is the SHA-256 of the file that describes the seal."""

    origin: str
    size: int
    root: bytes
    info: bytes

    def text(self) -> str:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{encode(self.root)}\nchunkproof {encode(self.info)}\n"

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Read the text of a checkpoint."""
        lines = text.split("\n")
        if len(lines) < 5 or lines[-1] or not lines[1].isdecimal() or not lines[3].startswith("chunkproof "):
            raise BrokenNoteError("it is not a checkpoint of a seal")
        checkpoint = cls(lines[0], int(lines[1]), decode(lines[2]), decode(lines[3].removeprefix("chunkproof ")))
        if checkpoint.text() != text or len(checkpoint.root) != 32:
            raise BrokenNoteError("it is not a checkpoint of a seal")
        return checkpoint
