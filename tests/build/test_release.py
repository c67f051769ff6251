"""The digest that publishes a version, and the zips of a package."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

from support.template import stack, template
from tools import package, release


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a release is made from."""
    for name in (*release.INPUTS, release.CONFIG, "functions/observability"):
        source = release.ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


def test_the_same_release_has_the_same_digest(project: Path) -> None:
    first = release.digest(project)
    (project / "shared" / "chunkproof" / "__pycache__").mkdir()
    (project / "shared" / "chunkproof" / "__pycache__" / "x.pyc").write_bytes(b"compiled")
    assert release.digest(project) == first == release.digest(release.ROOT)


@pytest.mark.parametrize(
    "file",
    [
        "shared/chunkproof/search.py",
        "shared/requirements.txt",
        "functions/search/app.py",
        "template.yaml",
    ],
)
def test_one_line_of_code_layer_or_template_makes_another_release(project: Path, file: str) -> None:
    before = release.digest(project)
    with (project / file).open("a") as opened:
        opened.write("\n# one more line\n")
    assert release.digest(project) != before


def configured(project: Path, *parameters: str, environment: str = "default") -> str:
    """The digest with these parameters in samconfig.toml."""
    (project / "samconfig.toml").write_text(
        f"[{environment}.deploy.parameters]\nparameter_overrides = {json.dumps(parameters)}\n"
    )
    return release.digest(project, environment=environment)


@pytest.mark.parametrize(
    "parameter",
    [
        "MemorySize=2048",
        "SecretArn=arn:aws:secretsmanager:us-east-1:123456789012:secret:keys-AbCdEf",  # through a condition too
        "SubnetIds=subnet-1,subnet-2",
        "Settings={}",
        "EnvironmentName=prod",
        "TracingLayerArn=arn",
        "SnapStart=PublishedVersions",
        "KmsKeyArn=arn",
    ],
)
def test_a_parameter_that_reaches_a_function_makes_another_release(project: Path, parameter: str) -> None:
    assert configured(project, "QdrantUrl=http://q", parameter) != configured(project, "QdrantUrl=http://q")
    assert release.digest(project, parameter) != release.digest(project, "QdrantUrl=http://q")


@pytest.mark.parametrize(
    "parameter",
    [
        "Observability=on-call@example.com",
        "SloPercent=99.9",
        "ThrottleRate=10",
        "JwtIssuer=https://issuer.example",
        "LogRetentionDays=7",
        "GradualRollout=true",
        "ReservedConcurrency=5",
        "Suite=true",
        "KeptDays=3",
    ],
)
def test_a_parameter_that_reaches_no_function_does_not(project: Path, parameter: str) -> None:
    same = configured(project, "QdrantUrl=http://q")
    assert configured(project, parameter, "QdrantUrl=http://q") == same
    assert release.digest(project, f"QdrantUrl=http://q {parameter}") == same


def test_a_change_of_alarms_or_of_a_comment_in_the_configuration_is_not_a_release(project: Path) -> None:
    before = release.digest(project)
    for file in ("samconfig.toml", "functions/observability/template.yaml"):
        with (project / file).open("a") as opened:
            opened.write("\n# one more line\n")
    assert release.digest(project) == before


def test_parameters_are_read_as_sam_reads_them(project: Path) -> None:
    same = configured(project, "MemorySize=512")
    assert configured(project, "ParameterKey=MemorySize,ParameterValue=512") == same
    assert configured(project, 'MemorySize="512"') == same
    assert release.digest(project, 'MemorySize="512"') == same, "those of the command line replace the others"
    (project / "samconfig.toml").write_text('[default.deploy.parameters]\nparameter_overrides = "MemorySize=512"\n')
    assert release.digest(project) == same


def test_a_quotation_mark_in_a_value_is_no_problem(project: Path) -> None:
    assert release.digest(project, "Collection=it's") != release.digest(project, "Collection=its")


def test_environments_have_parameters_of_their_own(project: Path) -> None:
    same = configured(project, "MemorySize=512")
    assert configured(project, "MemorySize=512", environment="prod") == same
    assert configured(project, "MemorySize=1024", environment="prod") != same


def test_a_build_for_the_other_processor_is_another_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # An alias that stayed would be on a version with the other processor's layer.
    printed = []
    for architecture in ("arm64", "x86_64", "arm64"):
        monkeypatch.setattr("sys.argv", ["release.py", "--architecture", architecture])
        release.main()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[2] != printed[1]


BUILT = """\
Rules:
  R:
    Assertions:
    - Assert:
        Fn::Not:
        - Fn::Equals:
          - Ref: ReleaseDigest
          - unset
Parameters:
  ReleaseDigest:
    Type: String
    Default: unset
Resources:
  F:
    Properties:
      AutoPublishCodeSha256:
        Ref: ReleaseDigest
      Architectures:
      - Ref: Architecture
"""


def test_a_stamped_template_deploys_what_was_built_whatever_the_parameters_were_before(
    tmp_path: Path,
) -> None:
    built = tmp_path / "t.yaml"
    built.write_text(BUILT)
    release.stamp(built, "x86_64", "abc123")
    text = built.read_text("utf-8")
    assert "AutoPublishCodeSha256: abc123\n" in text
    assert "- abc123\n          - unset\n" in text, "the rule holds for what was built"
    assert "- x86_64\n" in text
    assert "Ref:" not in text


def test_a_template_without_the_parameter_is_not_stamped_silently(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("Parameters: {}\n")
    with pytest.raises(SystemExit, match="ReleaseDigest is not used as expected"):
        release.stamp(tmp_path / "t.yaml", "arm64", "abc")


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    (folder / "SharedLayer" / "python").mkdir(parents=True)
    (folder / "SharedLayer" / "python" / "m.py").write_text("x = 1\n")
    shutil.copytree(folder / "SharedLayer", folder / "EdgeLayer")
    return folder


def test_a_package_has_the_layer_the_functions_and_the_api(build: Path, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    sizes = package.package(build, "arm64", dist)
    assert set(sizes) == {file.name for file in dist.iterdir()}
    layer = dist / "chunkproof-layer-python3.13-arm64.zip"
    assert ZipFile(layer).namelist() == ["python/m.py"]
    for name, folder in (("search", "search"), ("validate-chunk", "validate_chunk"), ("audit", "audit")):
        with ZipFile(dist / f"chunkproof-{name}.zip") as code:
            assert code.namelist() == ["app.py"]
            assert code.read("app.py") == (package.FUNCTIONS / folder / "app.py").read_bytes()
    assert (dist / "openapi.json").read_bytes() == package.OPENAPI.read_bytes()
    first = {file.name: file.read_bytes() for file in dist.iterdir()}
    package.package(build, "arm64", dist)
    assert {file.name: file.read_bytes() for file in dist.iterdir()} == first


def test_every_folder_of_functions_is_in_a_package_by_what_it_has(build: Path, tmp_path: Path) -> None:
    functions = [folder for folder in package.FUNCTIONS.iterdir() if folder.is_dir() and folder.name != "__pycache__"]
    names = {folder: f"chunkproof-{folder.name.replace('_', '-')}" for folder in functions}
    assert set(package.package(build, "x86_64", tmp_path)) == {
        "chunkproof-layer-python3.13-x86_64.zip",
        "chunkproof-edge-layer-python3.13-x86_64.zip",
        "chunkproof-stack.template.yaml",
        "openapi.json",
        *(f"{name}.zip" for folder, name in names.items() if (folder / "app.py").is_file()),
        *(f"{name}.asl.json" for folder, name in names.items() if list(folder.glob("*.asl.json"))),
        *(f"{name}.template.yaml" for folder, name in names.items() if (folder / "template.yaml").is_file()),
    }
    assert ZipFile(tmp_path / "chunkproof-search.zip").namelist() == ["app.py"]


def test_a_packaged_template_is_the_one_here_but_for_aliases_and_the_files_of_the_package(
    build: Path, tmp_path: Path
) -> None:
    package.package(build, "arm64", tmp_path)
    packaged = template(tmp_path / "chunkproof-stack.template.yaml")
    named = {
        resource["Properties"].pop(key)
        for resource in packaged["Resources"].values()
        for key in ("CodeUri", "DefinitionUri", "ContentUri", "Location")
        if key in resource.get("Properties", {})
    }
    assert {"chunkproof-search.zip", "chunkproof-audit.asl.json", "chunkproof-observability.template.yaml"} <= named
    assert all((tmp_path / name).is_file() for name in named)
    here = template()
    for resource in here["Resources"].values():
        for key in ("CodeUri", "DefinitionUri", "ContentUri", "Location"):
            resource["Properties"].pop(key, None)
    assert packaged == here
    for file in tmp_path.glob("*.template.yaml"):
        assert not [token for token in yaml.scan(file.read_text("utf-8")) if isinstance(token, yaml.AliasToken)]
    observability = tmp_path / "chunkproof-observability.template.yaml"
    assert template(observability) == template(package.FUNCTIONS / "observability" / "template.yaml")


def test_the_page_for_terraform_gives_every_placeholder_of_an_audit_and_parameters_that_exist() -> None:
    page = (package.ROOT / "docs" / "guides" / "terraform-cdk.md").read_text("utf-8")
    given = re.search(r"parameters = \{\n(.+?)\n  \}", page, re.DOTALL)
    filled = re.search(r"templatefile\(.+?\{\n(.+?)\n\}\)", page, re.DOTALL)
    assert given
    assert filled
    placeholders = re.findall(r"\$\{(\w+)\}", (package.FUNCTIONS / "audit" / "audit.asl.json").read_text("utf-8"))
    assert set(re.findall(r"^ +(\w+) +=", given[1], re.MULTILINE)) <= set(template()["Parameters"])
    assert "ReleaseDigest" in given[1]
    assert set(re.findall(r"^ +(\w+) +=", filled[1], re.MULTILINE)) == set(placeholders)


def versions(digest: str) -> set[str]:
    return set(stack(ReleaseDigest=digest).of_type("Lambda::Version"))


def test_one_changed_line_of_the_layer_publishes_a_version_of_each_function(project: Path) -> None:
    before = versions(release.digest(project))
    with (project / "shared" / "chunkproof" / "search.py").open("a") as opened:
        opened.write("\n# one more line\n")
    after = versions(release.digest(project))
    assert len(before) == len(after) == 2
    assert not before & after


# Former versions


class Versions:
    """Lambda's API for the versions of one function, of which the live one is number 4."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def get_paginator(self, _name: str) -> "Versions":
        return self

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        return [{"Versions": [{"Version": "$LATEST"}, {"Version": "1"}]}, {"Versions": [{"Version": n} for n in "234"]}]

    def delete_function(self, FunctionName: str, Qualifier: str) -> None:  # noqa: N803 - as boto3 names them
        self.deleted.append(f"{FunctionName}:{Qualifier}")


@pytest.mark.parametrize(
    ("before", "deleted"),
    [
        ({"f": "2"}, ["f:1", "f:3"]),  # 3 was taken back and never served
        ({"f": "4"}, []),  # nothing was released: the version before stays the one to go back to
        ({}, []),  # the first deployment
    ],
    ids=["release", "no-change", "first"],
)
def test_the_version_that_served_before_a_release_stays(
    before: dict[str, str], deleted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions()
    monkeypatch.setattr("boto3.client", lambda _: versions)
    release.prune({"f": "4"}, before)
    assert versions.deleted == deleted
