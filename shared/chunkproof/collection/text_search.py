"""How a collection is searched by words: by a sparse BM25 vector, or by a text index."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chunkproof.base.errors import TextIndexRequiredError
from chunkproof.collection.payload_map import PayloadMap, lies_in_json_string
from chunkproof.stores.store_port import Description, Features, TextLeg

if TYPE_CHECKING:
    from chunkproof.collection.services import Collection


def find_text_leg(collection: "Collection") -> TextLeg:
    """Return how the collection is searched by words: a leg without a text yet.

    `TextIndexRequiredError` names the call that makes an index.
    """
    description = collection.describe()
    features = collection.ask(collection.store.features)
    payloads = collection.sample.payloads
    if payloads:
        return choose_text_leg(description, features, _text_paths(payloads, collection.services.payloads))
    # It may be filled any moment, in any way.
    return choose_text_leg(description, features, [*map(_unquote, description.text_fields)] or ["text"])


def choose_text_leg(description: Description, features: Features, text_paths: list[str]) -> TextLeg:
    """Choose a sparse vector, else a text index."""
    name = description.name
    bm25 = [vector for vector, modifier in description.sparse_vectors.items() if modifier == "idf"]
    named = [vector for vector in bm25 if "bm25" in vector.lower()]
    if features.bm25 and (len(bm25) == 1 or len(named) == 1):
        return TextLeg("", sparse_vector=(named or bm25)[0])
    if features.text_index:
        indexed = {*map(_unquote, description.text_fields)}
        for path in text_paths:
            if path in indexed:
                return TextLeg("", field=path)
    if features.bm25 and bm25:
        raise TextIndexRequiredError(
            f"Collection {name} has several sparse vectors with the IDF modifier ({', '.join(sorted(bm25))}): "
            "the one to search by words must have bm25 in its name"
        )
    raise TextIndexRequiredError(_advice(name, features, description, text_paths))


def _advice(name: str, features: Features, description: Description, text_paths: list[str]) -> str:
    """Return what is missing, and which call makes it."""
    lacks = f"Collection {name} cannot be searched by words"
    if not (features.bm25 or features.text_index):
        return f"{lacks}: {explain_missing_bm25(features)}"
    others = [vector for vector, modifier in description.sparse_vectors.items() if modifier != "idf"]
    has = (
        f"its sparse vector {others[0]} has no IDF modifier, so it is not BM25" if others else "it has no BM25 vectors"
    )
    lacks = f"{lacks}: {has}"
    if features.text_index and text_paths:
        return (
            f"{lacks} and its texts have no index that ranks. Make one: "
            f'create_payload_index("{name}", field_name="{text_paths[0]}", '
            'field_schema=TextIndexParams(type="text", scoring=True))'
        )
    return (
        f"{lacks}. Make a collection with create_collection(…, "
        'sparse_vectors_config={"bm25": SparseVectorParams(modifier="idf")}) and write each point with '
        '"bm25": Document(text=…, model="qdrant/bm25"), or run chunkproof load --hybrid'
    )


def explain_missing_bm25(features: Features) -> str:
    """Say that neither the store nor this process makes BM25 vectors, and what does."""
    return (
        f"{features.store} makes no BM25 vectors. Update it to 1.15.3 or later, or run Chunkproof where "
        "qdrant-edge-py is installed, which makes them"
    )


def _text_paths(payloads: Sequence[Mapping[str, Any]], payload_map: PayloadMap) -> list[str]:
    """Return where the payloads keep their text, as far as the store can read it: no index reaches into a string."""
    paths = payload_map.paths_in("text", payloads)
    return [p for p in paths if not any(lies_in_json_string(p, payload) for payload in payloads)]


def _unquote(key: str) -> str:
    return key.replace('"', "")
