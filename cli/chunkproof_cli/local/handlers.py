"""Load the Lambda handlers from the repository or the installed package."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from chunkproof import CONTRACT_VERSION

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]
FUNCTIONS = ("search", "validate_chunk")


@cache
def load_function(name: str) -> ModuleType:
    """Import the function's `app.py`, once."""
    module_name = f"chunkproof_functions.{name}"
    spec = spec_from_file_location(module_name, _functions_folder() / name / "app.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no function {name}")
    module = module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module


def find_handler(path: str) -> Handler:
    """Return the handler of a path, according to the routes of template.yaml."""
    name = "validate_chunk" if path.startswith("/validate-chunk") else "search"
    handler: Handler = load_function(name).lambda_handler
    return handler


def build_openapi() -> dict[str, Any]:
    """Build one OpenAPI document for all functions."""
    merged: dict[str, Any] = {}
    for name in FUNCTIONS:
        document = json.loads(
            load_function(name).app.get_openapi_json_schema(
                title="Chunkproof",
                version=CONTRACT_VERSION,
                description="Retrieval that proves it returns what was stored.",
            )
        )
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)  # added by the resolver; Chunkproof answers 400
        if not merged:
            merged = document
        else:
            merged["paths"] |= document["paths"]
            merged["components"]["schemas"] |= document["components"]["schemas"]
    schemas = merged["components"]["schemas"]
    used = _find_references(merged["paths"], schemas)
    merged["components"]["schemas"] = {name: schemas[name] for name in sorted(used)}
    merged["servers"] = [{"url": "/"}]
    return merged


def _find_references(part: Any, schemas: dict[str, Any]) -> set[str]:
    """Find the schemas that a part of the document refers to, directly or not."""
    names: set[str] = set()
    todo = [part]
    while todo:
        for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(todo.pop())):
            if name not in names:
                names.add(name)
                todo.append(schemas[name])
    return names


def _functions_folder() -> Path:
    packaged = Path(__file__).parents[1] / "functions"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "functions"
