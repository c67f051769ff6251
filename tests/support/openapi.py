"""The committed OpenAPI document, and whether a response matches it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"


@cache
def document() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return made


def route_of(path: str) -> str:
    """The route that a path belongs to."""
    return "/collections/{name}" if path.startswith("/collections/") else path


def problems(method: str, path: str, status: int, body: Any) -> list[str]:
    """List where the body differs from the document's schema for this route and status."""
    operation = document()["paths"][route_of(path)][method.lower()]
    schema = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    validator = Draft202012Validator(
        {**schema, "components": document()["components"]},
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(body)]
