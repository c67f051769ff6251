"""Measure the size and shape of the product, each row with its limit (`make house`).

With `--walk`, also the files and functions that a warm search and a warm validation cross, which needs a Qdrant server.
Lower a limit when a change made room; raise one only with a reason.
"""

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"chunkproof": ROOT / "shared" / "chunkproof", "chunkproof_cli": ROOT / "cli" / "chunkproof_cli"}
# The group of commands imports each of these by its name, so they are many and need no importer.
COMMANDS = PACKAGES["chunkproof_cli"] / "commands"
HANDLERS = sorted((ROOT / "functions").rglob("*.py"))
TEMPLATES = [ROOT / "template.yaml", *sorted((ROOT / "functions").glob("*/template.yaml"))]
LIMITS = {
    "product lines (shared, cli, functions)": 45_887,
    "modules": 190,
    "most modules in a folder": 14,
    "class names defined twice": 0,
    "module names used twice": 0,
    "modules with one importer": 19,
    "functions that take services and deadline": 4,
    "settings": 42,  # the newest leaves `POST /mcp` out
    "template parameters, root": 36,
    "template parameters, all": 49,
    "template lines": 1_614,
    "commands": 31,
    "files, warm search": 18,
    "functions, warm search": 129,
    "files, warm validation": 17,
    "calls, warm search": 2_000,
    "calls, warm validation": 3_100,
}


def measure() -> dict[str, int]:
    """Return the rows that the files alone show."""
    files = [*modules().values(), *HANDLERS]
    folders = Counter(path.parent for path in modules().values() if path.parent != COMMANDS)
    names = Counter(path.stem for path in modules().values() if path.stem != "__init__")
    classes = Counter(
        node.name for path in modules().values() for node in _walk(path) if isinstance(node, ast.ClassDef)
    )
    parameters = [_count_parameters(path) for path in TEMPLATES]
    help_page = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    settings_page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    return {
        "product lines (shared, cli, functions)": sum(map(_count_lines, files)),
        "modules": len(modules()),
        "most modules in a folder": max(folders.values()),
        "class names defined twice": sum(count > 1 for count in classes.values()),
        "module names used twice": sum(count > 1 for count in names.values()),
        "modules with one importer": len(list(_find_single_imports())),
        "functions that take services and deadline": sum(map(_count_context_functions, files)),
        "settings": len(re.findall(r"^\| `[A-Z]", settings_page, re.M)),
        "template parameters, root": parameters[0],
        "template parameters, all": sum(parameters),
        "template lines": sum(map(_count_lines, TEMPLATES)),
        "commands": len(re.findall(r"^Usage: chunkproof [^C\n]*\[OPTIONS\](?! COMMAND)", help_page, re.M)),
    }


def measure_walks() -> dict[str, int]:
    """Return the rows of a warm search and a warm validation."""
    from tools.walk import walk_requests

    search, validation = walk_requests().values()
    return {
        "files, warm search": len(search.files),
        "functions, warm search": search.count_functions(),
        "files, warm validation": len(validation.files),
        "calls, warm search": search.calls,
        "calls, warm validation": validation.calls,
    }


@cache
def modules() -> Mapping[str, Path]:
    """Return the modules of both packages by their dotted names."""
    return {
        ".".join([name, *path.relative_to(folder).with_suffix("").parts]).removesuffix(".__init__"): path
        for name, folder in PACKAGES.items()
        for path in sorted(folder.rglob("*.py"))
    }


@cache
def _walk(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


def _count_lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _find_single_imports() -> Iterator[str]:
    importers: dict[str, set[Path]] = defaultdict(set)
    for path in (*modules().values(), *HANDLERS):
        for name in set(_find_imports(path)) & modules().keys():
            importers[name].add(path)
    for name, path in modules().items():
        if path.name != "__init__.py" and path.parent != COMMANDS and len(importers[name]) == 1:
            yield name


def _find_imports(path: Path) -> Iterator[str]:
    """Yield what the file imports, at its top or inside a function, or names in a text that may be an import."""
    for node in _walk(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in modules() else node.module for name in names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _count_context_functions(path: Path) -> int:
    functions = (node.args for node in _walk(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    taken = ({argument.arg for argument in (*args.posonlyargs, *args.args, *args.kwonlyargs)} for args in functions)
    return sum(names >= {"services", "deadline"} for names in taken)


def _count_parameters(template: Path) -> int:
    """Count the keys under Parameters; the tags of CloudFormation are not read."""
    events = yaml.compose(template.read_text("utf-8"), Loader=yaml.SafeLoader)
    return next((len(value.value) for key, value in events.value if key.value == "Parameters"), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walk", action="store_true", help="also trace a search and a validation")
    parser.add_argument("--list", action="store_true", help="name the modules with one importer")
    options = parser.parse_args()
    rows = measure() | (measure_walks() if options.walk else {})
    for row, figure in rows.items():
        print(f"  {row:44} {figure:7,} {LIMITS[row]:7,} {'' if figure <= LIMITS[row] else 'too many'}")
    if options.list:
        print(*_find_single_imports(), sep="\n")
    sys.exit(any(figure > LIMITS[row] for row, figure in rows.items()))


if __name__ == "__main__":
    main()
