"""What was built as files to deploy with Terraform or the CDK; `make package` runs this.

Each folder of functions/ is covered by what it has: `app.py`, a state machine (`*.asl.json`), a `template.yaml`. The
whole stack is `chunkproof-stack.template.yaml`, which names these files. CloudFormation reads no aliases of YAML,
which only `sam build` resolves: templates are written without them.
"""

import argparse
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import yaml

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
FUNCTIONS = ROOT / "functions"
OPENAPI = ROOT / "docs" / "openapi.json"
# Lambda reads all of these dates as long ago, and equal inputs give equal zips.
EPOCH = (1980, 1, 1, 0, 0, 0)


def zip_folder(folder: Path, target: Path, pattern: str = "*") -> tuple[int, int]:
    """The folder's files under their own names, in order; the size of the zip and of what is in it."""
    files = sorted(path for path in folder.rglob(pattern) if path.is_file())
    with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for file in files:
            entry = ZipInfo(file.relative_to(folder).as_posix(), EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return target.stat().st_size, sum(file.stat().st_size for file in files)


def package(
    build: Path, architecture: str, into: Path = DIST, functions: Path = FUNCTIONS
) -> dict[str, tuple[int, int]]:
    """Each artefact's name, its size and its size unzipped, in bytes."""
    into.mkdir(exist_ok=True)
    layers = {
        folder: f"chunkproof-{name}-python3.13-{architecture}.zip"
        for folder, name in (("SharedLayer", "layer"), ("EdgeLayer", "edge-layer"))
    }
    sizes = {name: zip_folder(build / folder, into / name) for folder, name in layers.items()}
    files: dict[str, str] = {}
    for folder in sorted(path for path in functions.iterdir() if path.is_dir()):
        sizes |= _application(folder, into, files)
    name = "chunkproof-stack.template.yaml"
    sizes[name] = _write(into / name, write_template(ROOT / "template.yaml", files, layers))
    return sizes | {"openapi.json": _write(into / "openapi.json", OPENAPI.read_text("utf-8"))}


def _application(folder: Path, into: Path, files: dict[str, str]) -> dict[str, tuple[int, int]]:
    """What a folder of functions/ has of these: code, the definition of a state machine, a template.

    `files` gets what the stack's template calls each of them, and the name here.
    """
    name, at = f"chunkproof-{folder.name.replace('_', '-')}", f"functions/{folder.name}/"
    sizes = {}
    if (folder / "app.py").is_file():  # the packages that it needs are in the layer
        files[at] = f"{name}.zip"
        sizes[files[at]] = zip_folder(folder, into / files[at], "*.py")
    for machine in folder.glob("*.asl.json"):
        files[at + machine.name] = f"{name}.asl.json"
        sizes[f"{name}.asl.json"] = _write(into / f"{name}.asl.json", machine.read_text("utf-8"))
    if (template := folder / "template.yaml").is_file():
        files[at + template.name] = f"{name}.template.yaml"
        sizes[f"{name}.template.yaml"] = _write(into / f"{name}.template.yaml", write_template(template, {}, {}))
    return sizes


def write_template(template: Path, files: dict[str, str], layers: dict[str, str]) -> str:
    """The template without aliases and comments, with the files of the package in place of folders."""
    root = yaml.compose(template.read_text("utf-8"), Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    for resource, made in _entry(root, "Resources").value:
        for key, value in _entry(made, "Properties").value if _has(made, "Properties") else ():
            if key.value in ("CodeUri", "DefinitionUri", "Location"):
                value.value = files[value.value]
            elif key.value == "ContentUri":
                value.value = layers[resource.value]
    return str(yaml.serialize(root, Dumper=_WithoutAliases, width=10_000))


class _WithoutAliases(yaml.SafeDumper):
    """Writes a node that is used twice in full each time."""

    def anchor_node(self, node: yaml.Node) -> None:
        self.anchors[node] = None
        if isinstance(node, yaml.CollectionNode):
            for part in node.value:
                for one in part if isinstance(part, tuple) else (part,):
                    self.anchor_node(one)

    def serialize_node(self, node: yaml.Node, parent: yaml.Node | None, index: object) -> None:
        self.serialized_nodes.pop(node, None)
        super().serialize_node(node, parent, index)


def _has(node: yaml.MappingNode, name: str) -> bool:
    return any(key.value == name for key, _ in node.value)


def _entry(node: yaml.MappingNode, name: str) -> yaml.MappingNode:
    return next(value for key, value in node.value if key.value == name)


def _write(target: Path, text: str) -> tuple[int, int]:
    target.write_text(text, "utf-8", newline="\n")
    size = target.stat().st_size
    return size, size


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, required=True)
    arguments.add_argument("--architecture", required=True)
    given = arguments.parse_args()
    for name, (size, unzipped) in package(given.build, given.architecture).items():
        print(f"  {size / 1e3:8,.0f} kB  {unzipped / 1e3:8,.0f} kB unzipped  dist/{name}")


if __name__ == "__main__":
    main()
