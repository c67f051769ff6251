"""Canaries: fixed texts are embedded again and compared with recorded vectors."""

import json
from collections.abc import Sequence

import pytest

from chunkproof.base.errors import EmbeddingError, InvalidParameterError, NotConfiguredError
from chunkproof.base.request import Deadline
from chunkproof.base.settings import Settings
from chunkproof.collection.services import Services
from chunkproof.embedders.embedder_port import Embedder, InputType
from chunkproof.proof.canaries import TEXTS, TOLERANCE, Canary, check_canaries, record_canaries

from support.stores import MemoryStore
from support.words import Words


class Records:
    """Records in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def read_if_exists(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def write(self, name: str, content: str | bytes) -> None:
        self.kept[name] = content.encode() if isinstance(content, str) else content


class Model(Words):
    """Turns the vectors of documents or queries by an angle whose tangent is `turn`, for one text or for all."""

    def __init__(self, name: str = "words", turn: float = 0.0, only: str = "", as_: InputType | None = None) -> None:
        self.model, self.turn, self.only, self.as_ = name, turn, only, as_
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str], input_type: InputType, deadline: Deadline) -> list[list[float]]:
        self.calls.append(len(texts))
        vectors = super().embed(texts, input_type, deadline)
        turned = self.as_ in (None, input_type)
        return [self._turn(v) if turned and self.only in text else v for text, v in zip(texts, vectors, strict=True)]

    def _turn(self, vector: list[float]) -> list[float]:
        """Add so much of a vector at right angles."""
        empty = vector.index(0.0)
        moved = [self.turn if place == empty else value for place, value in enumerate(vector)]
        length = (1 + self.turn**2) ** 0.5
        return [value / length for value in moved]


def services(default: Embedder | None, **own: Embedder) -> Services:
    made = Settings.from_env({"CHUNKPROOF_COLLECTION": "docs"})
    return Services(made, MemoryStore(), default, embedders=own)


def check_again(before: Embedder, now: Embedder, tolerance: float = TOLERANCE) -> Canary:
    records = Records()
    record_canaries(services(before), records)
    (found,) = check_canaries(services(now), records, tolerance=tolerance)
    return found


def test_ten_different_texts_are_fixed() -> None:
    assert len(set(TEXTS)) == len(TEXTS) == 10


def test_the_same_model_has_not_changed() -> None:
    found = check_again(Model(), Model())
    assert (found.state, found.texts) == ("same", ())
    assert found.drift == pytest.approx(0.0, abs=1e-12)
    assert (found.model, found.dimension, found.collections) == ("words", 64, ("docs",))


def test_other_weights_under_the_same_name_are_a_change() -> None:
    found = check_again(Model(), Model(turn=1.0))  # by 45 degrees
    assert found.state == "changed"
    assert found.drift == pytest.approx(1 - 0.5**0.5)
    assert len(found.texts) == 20


@pytest.mark.parametrize("kind", list(InputType))
def test_one_text_in_one_role_is_enough_and_is_named(kind: InputType) -> None:
    found = check_again(Model(), Model(turn=0.1, only="Поезд", as_=kind))
    (text,) = found.texts
    assert (text.number, text.text, text.input_type) == (10, TEXTS[9], kind.value)
    assert text.cosine == pytest.approx(1 / 1.01**0.5)


@pytest.mark.parametrize(("turn", "state"), [(0.01, "same"), (0.04, "same"), (0.05, "changed")])
def test_noise_is_tolerated_up_to_the_tolerance(turn: float, state: str) -> None:
    # 1 - cosine is about half the square: 0.00005, 0.0008 and 0.00125.
    assert check_again(Model(), Model(turn=turn)).state == state


def test_the_tolerance_can_be_set() -> None:
    assert check_again(Model(), Model(turn=0.05), tolerance=0.002).state == "same"


def test_another_size_under_the_same_name_is_a_change() -> None:
    larger = Model()
    larger.dimension = 128  # type: ignore[misc]
    found = check_again(Model(), larger)
    assert (found.state, found.recorded_dimension, found.dimension) == ("changed", 64, 128)
    assert found.drift == 1.0


def test_without_a_record_there_is_no_verdict_unless_one_may_be_made() -> None:
    records, subject = Records(), services(Model())
    (found,) = check_canaries(subject, records)
    assert (found.state, found.drift, records.kept) == ("not recorded", None, {})
    (found,) = check_canaries(subject, records, record_missing=True)
    assert found.state == "recorded"
    (found,) = check_canaries(services(Model(turn=1.0)), records, record_missing=True)
    assert found.state == "changed"  # a record is not replaced by a check
    record_canaries(services(Model(turn=1.0)), records)
    (found,) = check_canaries(services(Model(turn=1.0)), records)
    assert found.state == "same"


def test_another_model_has_a_record_of_its_own() -> None:
    records = Records()
    record_canaries(services(Model("a")), records)
    (found,) = check_canaries(services(Model("b", turn=1.0)), records)
    assert found.state == "not recorded"


def test_every_collection_with_an_embedder_of_its_own_is_checked() -> None:
    records = Records()
    record_canaries(services(Model("a"), other=Model("a", turn=1.0)), records)
    assert len(records.kept) == 2
    found = check_canaries(services(Model("a"), other=Model("a")), records)
    assert [(one.collections, one.state) for one in found] == [(("docs",), "same"), (("other",), "changed")]


def test_an_embedder_that_no_collection_uses_is_not_asked() -> None:
    (found,) = check_canaries(services(None, docs=Model("own")), Records())
    assert found.model == "own"
    with pytest.raises(NotConfiguredError):
        check_canaries(services(None), Records())


def test_texts_are_sent_in_batches_that_the_model_takes() -> None:
    model = Model()
    model.max_batch = 4  # type: ignore[misc]
    record_canaries(services(model), Records())
    assert model.calls == [4, 4, 2, 4, 4, 2]


def test_an_answer_that_is_no_embedding_is_an_error_and_not_a_change() -> None:
    class Broken(Model):
        def embed(self, texts: Sequence[str], _input_type: InputType, _deadline: Deadline) -> list[list[float]]:
            return [[0.0] * 64 for _ in texts]

    with pytest.raises(EmbeddingError, match="all zeros"):
        check_again(Model(), Broken())


@pytest.mark.parametrize("damage", ["not json", "{}", "fewer", "zeros"])
def test_a_damaged_record_is_named_with_its_remedy(damage: str) -> None:
    records = Records()
    record_canaries(services(Model()), records)
    (name,) = records.kept
    document = json.loads(records.kept[name])
    if damage == "fewer":
        document["vectors"]["search_query"].pop()
    elif damage == "zeros":
        document["vectors"]["search_query"][0] = [0.0] * 64
    records.kept[name] = json.dumps(document).encode() if damage in ("fewer", "zeros") else damage.encode()
    with pytest.raises(InvalidParameterError, match="chunkproof canary record"):
        check_canaries(services(Model()), records)
