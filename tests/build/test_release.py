"""The digest that publishes a version, and the zips of a package."""

import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest

from support.template import stack
from tools import package, release


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a release is made from."""
    for name in release.INPUTS:
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
        "samconfig.toml",
    ],
)
def test_one_line_of_code_layer_or_parameters_makes_another_release(project: Path, file: str) -> None:
    before = release.digest(project)
    with (project / file).open("a") as opened:
        opened.write("\n# one more line\n")
    assert release.digest(project) != before


def test_parameters_of_the_command_line_count_too(project: Path) -> None:
    assert release.digest(project, "MemorySize=2048") != release.digest(project, "MemorySize=1024")


BUILT = """\
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
    assert "- x86_64\n" in text
    assert "Ref:" not in text


def test_a_template_without_the_parameter_is_not_stamped_silently(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("Parameters: {}\n")
    with pytest.raises(SystemExit, match="ReleaseDigest is not used as expected"):
        release.stamp(tmp_path / "t.yaml", "arm64", "abc")


def test_a_package_has_the_layer_the_functions_and_the_api(tmp_path: Path) -> None:
    build = tmp_path / "build"
    for folder, file in (
        ("SharedLayer/python", "m.py"),
        ("SearchFunction", "app.py"),
        ("ValidateChunkFunction", "app.py"),
    ):
        (build / folder).mkdir(parents=True)
        (build / folder / file).write_text("x = 1\n")
    sizes = package.package(build, "arm64", tmp_path / "dist")
    assert set(sizes) == {
        "chunkproof-layer-python3.13-arm64.zip",
        "chunkproof-search.zip",
        "chunkproof-validate-chunk.zip",
        "openapi.json",
    }
    layer = tmp_path / "dist" / "chunkproof-layer-python3.13-arm64.zip"
    assert ZipFile(layer).namelist() == ["python/m.py"]
    first = layer.read_bytes()
    package.package(build, "arm64", tmp_path / "dist")
    assert layer.read_bytes() == first


def versions(digest: str) -> set[str]:
    return set(stack(ReleaseDigest=digest).of_type("Lambda::Version"))


def test_one_changed_line_of_the_layer_publishes_a_version_of_each_function(project: Path) -> None:
    before = versions(release.digest(project))
    with (project / "shared" / "chunkproof" / "search.py").open("a") as opened:
        opened.write("\n# one more line\n")
    after = versions(release.digest(project))
    assert len(before) == len(after) == 2
    assert not before & after
