"""README, guides and reference: their links lead somewhere, their lines can be read, their commands agree."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = {DOCS / "reference" / "cli.md", DOCS / "reference" / "settings.md"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
MAX_LINE = 120
FOR_DEVELOPERS = [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", *sorted((DOCS / "decisions").glob("*.md"))]
SOURCES = ("shared", "cli", "functions", "tests", "tools", "bench")
# Names of files to write in a recipe: `commands/NAME.py`.
PLACEHOLDER = re.compile("NAME|KIND")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of code blocks and tables."""
    in_code = False
    for number, line in enumerate(page.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("|"):
            yield number, line


def long_lines(page: str) -> list[int]:
    return [number for number, line in prose(page) if len(line) > MAX_LINE]


def anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs make them."""
    headings = (re.sub(r"[`*]", "", line.lstrip("# ")) for _, line in prose(page) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    links = [link for line in text.splitlines() for link in LINK.findall(line)]
    return [link for link in links if "://" not in link and not leads_somewhere(link, page)]


def leads_somewhere(link: str, page: Path) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.is_file() and (not anchor or anchor in anchors(target.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED], ids=name)
def test_no_line_of_prose_is_longer_than_120_characters(page: Path) -> None:
    assert long_lines(page.read_text("utf-8")) == []


def test_long_lines_are_found_outside_of_tables_and_code() -> None:
    long = "x" * (MAX_LINE + 1)
    assert long_lines(f"{long}\n| {long} |\n```\n{long}\n```\nshort\n- {long}\n") == [1, 7]


def test_links_to_missing_files_and_headings_are_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("# The `A` page\n[a](#the-a-page) [b](#gone) [c](gone.md) [d](https://example.com)\n", "utf-8")
    assert broken_links(page) == ["#gone", "gone.md"]


@pytest.mark.parametrize("page", FOR_DEVELOPERS, ids=name)
def test_every_source_file_named_for_developers_exists(page: Path) -> None:
    named = re.findall(r"`([\w./-]+\.(?:py|toml|yaml))`", page.read_text("utf-8"))
    written = [str(file) for folder in SOURCES for file in (ROOT / folder).rglob("*.*")]
    written += [str(file) for file in ROOT.glob("*.*")]
    missing = {
        file for file in named if not PLACEHOLDER.search(file) and not any(f.endswith(f"/{file}") for f in written)
    }
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_name_of_the_python_package_exists(page: Path) -> None:
    for named in re.findall(r"`(chunkproof(?:\.\w+)+)", page.read_text("utf-8")):
        resolve_name(named)


def test_the_architecture_describes_every_room() -> None:
    text = (DOCS / "architecture.md").read_text("utf-8")
    packages = [*(ROOT / "shared" / "chunkproof").glob("*/__init__.py"), *(ROOT / "cli").glob("*/*/__init__.py")]
    rooms = {package.parent.name for package in packages}
    first_cells = re.findall(r"^\|(?: \d \|)? (`[^|]+) \|", text, re.M)
    assert rooms - set(re.findall(r"`(\w+)`", " ".join(first_cells))) == set()


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 200


def test_what_the_commands_of_the_readme_write_does_not_belong_to_the_project() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    files = set(re.findall(r"(?:-o|--export|--original-file|>) (\w+\.\w+)", "".join(readme.split("```")[1::2])))
    assert {"chunks.jsonl", "report.json", "page.txt", "requests.jsonl"} <= files
    ignored = subprocess.run(["git", "check-ignore", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert set(ignored.stdout.split()) == files


def test_the_readme_deploys_with_the_commands_of_the_guide() -> None:
    def block(page: Path, heading: str) -> list[str]:
        section = page.read_text("utf-8").split(f"\n## {heading}\n")[1]
        return [line.partition(" # ")[0].rstrip() for line in section.split("```\n")[1].splitlines()]

    assert block(ROOT / "README.md", "Deploy") == block(DOCS / "guides" / "deploy.md", "Deploying")


def test_every_page_is_in_the_sites_navigation() -> None:
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = set(re.findall(r"[\w/-]+\.md", yaml.safe_dump(yaml.safe_load(site)["nav"])))
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent.name != "decisions"}
    assert written - {"skill/SKILL.md"} | {"decisions/README.md"} == listed


def test_every_decision_is_in_their_table() -> None:
    folder = DOCS / "decisions"
    written = {page.name for page in folder.glob("*.md")} - {"README.md"}
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", (folder / "README.md").read_text("utf-8"), re.M)
    assert sorted(listed) == sorted(written)
