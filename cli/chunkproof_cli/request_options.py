"""Options of commands, made from the fields of a request, so that each is described once."""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from chunkproof.base.errors import InvalidParameterError
from chunkproof.contract import SearchQuery, read_json
from chunkproof.contract.query_options import RerankOptions
from chunkproof_cli.options import Command, add_options

# What the command line calls a field of `POST /search`.
_SAME_NAMES = ("top_k", "rerank", "neighbours", "highlight", "fusion", "params", "group_by", "group_size")
SEARCH_FLAGS = {
    name: "--" + name.replace("_", "-") for name in (*_SAME_NAMES, "diversity", "cursor", "mode", "require_integrity")
} | {
    "query_text": "TEXT",
    "queries": "TEXT",
    "similarity_threshold": "--threshold",
    "filters": "--filter",
    "filters.": "--filter ",
    "rerank.model": "--rerank",
    "rerank.candidates": "--candidates",
}
_NAMED_FIELD = re.compile(r"\b(?:top_k|group_by|group_size|mode(?= hybrid))\b")
# What a value of the API means, which the command line has no use for.
_JSON_VALUE = re.compile("; (?:true|full) ")
FUSION_METHODS = ("rrf", "dbsf")


def plain_type(field: FieldInfo) -> Any:
    """Return the type of a field as a user writes it: a flag, a number, a text or a choice; else a JSON object."""
    kinds = get_args(field.annotation) or (field.annotation,)
    plain = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, bool | int | float | str))
    return next(plain, dict[str, Any])


def request_option(
    model: type[BaseModel], name: str, *flags: str, note: str = "", **settings: Any
) -> Callable[[Command], Command]:
    """Return the click option of a field; `note` follows its description, `settings` replace what its type says."""
    field = model.model_fields[name]
    kind = plain_type(field)
    if kind is bool:
        settings.setdefault("is_flag", True)
    elif kind in (int, float):
        settings.setdefault("type", kind)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        settings.setdefault("type", click.Choice([choice.value for choice in kind], case_sensitive=False))
    text = _NAMED_FIELD.sub(lambda found: SEARCH_FLAGS[found[0]], str(field.description))
    text = _JSON_VALUE.split(text)[0]
    return click.option(*flags or ("--" + name.replace("_", "-"),), name, help=f"{text}{note}.", **settings)


_option = partial(request_option, SearchQuery)
# The options of a search, in the order of the help.
SEARCH_OPTIONS = {
    "top_k": _option("top_k", "-k", "--top-k", note="; 5 by default"),
    "similarity_threshold": _option(
        "similarity_threshold", "--similarity-threshold", "--threshold", note=", 0 to 1", default=0.0, show_default=True
    ),
    "filters": _option(
        "filters",
        "--filter",
        "--filters",
        multiple=True,
        metavar="FIELD=VALUE",
        note='; may be repeated. VALUE may be JSON: 3, "3", true, ["a", "b"], {"gte": 1}',
    ),
    "rerank": _option(
        "rerank",
        is_flag=False,
        flag_value="",  # what --rerank alone stands for
        metavar="[MODEL]",
        note=", which needs COHERE_API_KEY; CHUNKPROOF_RERANK_MODEL by default. Write it after TEXT, or as "
        "--rerank=MODEL",
    ),
    "candidates": request_option(RerankOptions, "candidates", "--candidates", metavar="N", note=". It needs --rerank"),
    "require_integrity": _option("require_integrity"),
    "receipt": _option(
        "receipt",
        is_flag=False,
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        note=". FILE gets the whole response, with the query's text and vector, for `chunkproof verify`",
    ),
    "highlight": _option("highlight"),
    "neighbours": _option("neighbours", metavar="N", note=", 1 to 5"),
    "explain": _option("explain"),
    "mode": _option("mode"),
    "fusion": _option(
        "fusion", metavar="METHOD|JSON", note=': rrf (default), dbsf, or {"k": 20, "weights": {"dense": 1, "text": 2}}'
    ),
    "params": _option("params", metavar="JSON", note=', such as {"hnsw_ef": 256} or {"exact": true}'),
    "group_by": _option("group_by", metavar="FIELD"),
    "group_size": _option("group_size"),
    "diversity": _option("diversity"),
    "cursor": _option("cursor"),
}


def search_options(*names: str) -> Callable[[Command], Command]:
    """Add the options of these fields of a search; `pop_search` reads them."""
    return add_options(*(SEARCH_OPTIONS[name] for name in names))


def pop_search(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a search out of a command's, and return them as fields of `POST /search`."""
    values = {name: given.pop(name) for name in SEARCH_OPTIONS if name in given}
    candidates = values.pop("candidates", None)
    request = {name: value for name, value in values.items() if value is not None and value is not False}
    if candidates is not None and "rerank" not in request:
        raise click.UsageError("--candidates needs --rerank")
    if (model := request.get("rerank")) is not None:
        rerank = {"model": model or None, "candidates": candidates}
        request["rerank"] = {name: value for name, value in rerank.items() if value is not None}
    if fusion := request.get("fusion"):
        is_method = fusion in FUSION_METHODS
        request["fusion"] = {"method": fusion} if is_method else _read_object(fusion, "--fusion", "rrf, dbsf or ")
    if params := request.get("params"):
        request["params"] = _read_object(params, "--params")
    return request | {"filters": parse_filters(request["filters"])}


def parse_filters(options: tuple[str, ...]) -> dict[str, Any]:
    """Build the filter object from `FIELD=VALUE` options; a value that is not JSON is a string."""
    filters: dict[str, Any] = {}
    for option in options:
        field, equals, value = option.partition("=")
        if not equals or not field:
            raise click.BadParameter(f"{option!r} is not FIELD=VALUE", param_hint="--filter")
        if field in filters:
            raise click.BadParameter(
                f"{field} is given twice; to match any of several values, use {field}=[…]", param_hint="--filter"
            )
        filters[field] = _parse_value(value)
    return filters


def _parse_value(text: str) -> Any:
    looks_like_json = text[:1] in ("[", "{", '"')
    if not looks_like_json and text not in ("true", "false", "null") and not text.lstrip("-")[:1].isdigit():
        return text
    try:
        return read_json(text)
    except InvalidParameterError:
        if looks_like_json:
            raise click.BadParameter(f"{text!r} is not JSON", param_hint="--filter") from None
        return text  # a date, a version number


def _read_object(text: str, option: str, others: str = "") -> dict[str, Any]:
    try:
        value = read_json(text)
    except InvalidParameterError:
        value = None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{text!r} is not {others}a JSON object", param_hint=option)
    return value
