"""Keys, signed notes (C2SP signed-note), checkpoints (C2SP tlog-checkpoint) and signatures of reports."""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from chunkproof.base.errors import InvalidParameterError, NotConfiguredError, UnavailableError
from chunkproof.base.files import private_files, read_file, read_text, write_file, write_new_file

ED25519, P256 = 1, 2
KMS = "kms:"
DASH = "\N{EM DASH} "
REPORT_FORMAT, SUFFIX = "chunkproof-report/1", ".sig"
_NAME = re.compile(r"[^\s+\x00-\x1f]{1,200}")


class RefutedError(ValueError):
    """Something is not what it has to be: a note, a checkpoint, a claim of a receipt; the message says why."""


def encode(data: bytes) -> str:
    """Return the base64 of some bytes."""
    return b64encode(data).decode()


def digest(data: bytes) -> str:
    """Return the base64 of the SHA-256 of some bytes."""
    return encode(sha256(data).digest())


def decode(text: Any) -> bytes:
    """Read base64 that is written as `encode` writes it; `RefutedError` for anything else."""
    with suppress(Base64Error, ValueError, TypeError):
        data = b64decode(text, validate=True)
        if encode(data) == text:
            return data
    raise RefutedError(f"{str(text)[:20]!r} is not base64 as it is usually written")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A named public key; its text is a C2SP vkey, `NAME+ID+BASE64`."""

    name: str
    kind: int
    data: bytes

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidParameterError("The name of a key has 1 to 200 characters, without spaces and +")

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
        with suppress(IndexError, ValueError):
            data = decode(parts[2])
            key = cls(parts[0], data[0], data[1:])
            if key.id.hex() == parts[1] and key.kind in (ED25519, P256):
                return key
        shown = "a private key" if parts[0] == "PRIVATE" else f"{text.strip()[:60]!r}"
        raise InvalidParameterError(f"{shown} is not a public key, NAME+ID+BASE64 as `chunkproof key` prints")

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether the signature is this key's, of this content."""
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        with suppress(InvalidSignature, UnsupportedAlgorithm, ValueError):
            if self.kind == ED25519:
                ed25519.Ed25519PublicKey.from_public_bytes(self.data).verify(signature, content)
                return True
            key = load_der_public_key(self.data)
            if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1):
                key.verify(signature, content, ec.ECDSA(SHA256()))
                return True
        return False


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key: what signs with it, and its public key."""

    public: PublicKey
    sign: Callable[[bytes], bytes]


def open_signer(key: str | None) -> Signer:
    """Return the key in a file, or `kms:KEY-ID`, or `kms:KEY-ID=NAME`."""
    if not key:
        raise NotConfiguredError("No key to sign with: make one with `chunkproof key NAME`, and give it with --key")
    if not key.startswith(KMS):
        return _open_file(Path(key))
    key_id, _, name = key.removeprefix(KMS).partition("=")
    return open_kms_key(key_id, name)


def _open_file(path: Path) -> Signer:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    parts = read_text(path, "The key").strip().split("+", 4)
    try:
        seed = decode(parts[4])
        key = Ed25519PrivateKey.from_private_bytes(seed[1:])
        public = PublicKey(parts[2], ED25519, key.public_key().public_bytes_raw())
        if [*parts[:2], parts[3], seed[0]] == ["PRIVATE", "KEY", public.id.hex(), ED25519]:
            return Signer(public, key.sign)
    except (IndexError, ValueError):  # whose message may show the key
        pass
    raise InvalidParameterError(f"{path} is not a private key of `chunkproof key`")


def open_kms_key(key_id: str, name: str = "") -> Signer:
    """Return a key of AWS KMS, which never leaves it: ECC_NIST_P256, or ECC_NIST_EDWARDS25519 where a region has it."""

    def call(operation: str, **fields: Any) -> Any:
        from chunkproof.net.s3 import aws_client

        try:
            return getattr(aws_client("kms"), operation)(KeyId=key_id, **fields)
        except Exception as error:  # noqa: BLE001 - boto3's own, which are not imported for this
            code = getattr(error, "response", {}).get("Error", {}).get("Code") or type(error).__name__
            raise UnavailableError(f"KMS refused {operation} with key {key_id} ({code})") from None

    def sign(content: bytes) -> bytes:  # KMS takes at most 4,096 bytes, and all notes are shorter
        return bytes(call("sign", Message=content, MessageType="RAW", SigningAlgorithm=algorithm)["Signature"])

    answer = call("get_public_key")
    der, spec = bytes(answer["PublicKey"]), answer.get("KeySpec") or answer.get("CustomerMasterKeySpec")
    name = name or "kms-" + re.sub(r"[^A-Za-z0-9.-]", "-", key_id.rsplit("/", 1)[-1])
    if spec == "ECC_NIST_P256":
        algorithm, public = "ECDSA_SHA_256", PublicKey(name, P256, der)
    elif spec == "ECC_NIST_EDWARDS25519":
        algorithm, public = "ED25519_SHA_512", PublicKey(name, ED25519, der[-32:])
    else:
        raise InvalidParameterError(f"KMS key {key_id} is {spec}: make one of ECC_NIST_P256, SIGN_VERIFY")
    return Signer(public, sign)


def make_key(name: str, path: Path) -> PublicKey:
    """Write a new key to a file that only this user can read, and its public key beside it, with `.pub`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = PublicKey(name, ED25519, key.public_key().public_bytes_raw())
    secret = encode(bytes([ED25519]) + key.private_bytes_raw())
    with private_files():
        write_new_file(path, f"PRIVATE+KEY+{name}+{public.id.hex()}+{secret}\n")
    path.with_name(path.name + ".pub").write_text(f"{public}\n", "utf-8")
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
        raise RefutedError("it is not a signed note")
    text += "\n"
    signed: list[PublicKey] = []
    for line in signatures.removesuffix("\n").split("\n"):
        name, _, value = line.removeprefix(DASH).partition(" ")
        if not line.startswith(DASH) or not name:
            raise RefutedError("a line of its signatures is damaged")
        data = decode(value)
        for key in keys:
            if key.name == name and key.id == data[:4]:
                if not key.has_signed(text.encode(), data[4:]):
                    raise RefutedError(f"the signature of {name} is not of this text")
                signed.append(key)
    return text, signed


def sign_report(file: Path, signer: Signer) -> None:
    """Write the signature of a report beside it: a note with its hash and the time."""
    text = f"{REPORT_FORMAT}\n{digest(file.read_bytes())}\n{datetime.now(UTC).isoformat(timespec='seconds')}\n"
    write_file(file.with_name(file.name + SUFFIX), sign_note(text, [signer]))


def open_report(file: Path, keys: Sequence[PublicKey]) -> str:
    """Return who signed a report, and when; `RefutedError` says why that is not proved."""
    text, signed = open_note(read_file(file.with_name(file.name + SUFFIX)).decode("utf-8", "replace"), keys)
    kind, hashed, signed_at, *_ = [*text.split("\n"), "", ""]
    if (kind, hashed) != (REPORT_FORMAT, digest(file.read_bytes())):
        raise RefutedError("the report is not the one that was signed")
    if not signed:
        raise RefutedError("it is not signed by any of the given keys")
    return f"signed by {signed[0].name} at {signed_at}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Size of both trees, the roots over short and whole entries, and the SHA-256 of the seal's description."""

    origin: str
    size: int
    roots: tuple[bytes, bytes]
    info: bytes

    def text(self) -> str:
        """Return the text that is signed."""
        root, info, whole = map(encode, (self.roots[0], self.info, self.roots[1]))
        return f"{self.origin}\n{self.size}\n{root}\nchunkproof {info} {whole}\n"

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Read the text of a checkpoint."""
        with suppress(ValueError):  # of parts that are not as many, too
            origin, size, root, line, _ = text.split("\n")
            info, whole = line.removeprefix("chunkproof ").split(" ")
            checkpoint = cls(origin, int(size), (decode(root), decode(whole)), decode(info))
            if checkpoint.text() == text and checkpoint.size >= 0 and {*map(len, checkpoint.roots)} == {32}:
                return checkpoint
        raise RefutedError("it is not a checkpoint of a seal")
