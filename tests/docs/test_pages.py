"""The pages keep their form, can be found, and name what exists."""

import re

from tests.docs.blocks import PAGES, ROOT, blocks_of

COLUMNS_MAX = 100
TOP = [ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]


def test_prose_and_code_stay_within_100_columns() -> None:
    found = []
    for page in [*PAGES, *TOP]:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            # A row of a table cannot be broken.
            if len(line) > COLUMNS_MAX and not line.startswith("|") and "](" not in line:
                found.append(f"{page.relative_to(ROOT)}:{number}: {len(line)} columns")
    assert found == []


def test_every_page_is_reached_from_the_readme() -> None:
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8"))
        waiting += [(page.parent / t).resolve() for t in targets if "://" not in t]
    assert sorted(set(PAGES) - seen) == []


def test_every_fence_is_closed_and_names_a_known_language() -> None:
    for page in PAGES:
        fences = [x for x in page.read_text("utf-8").splitlines() if x.startswith("```")]
        assert len(fences) % 2 == 0, page
        assert {b.language for b in blocks_of(page)} <= {"", "python", "text", "diff"}, page


def test_the_readme_is_short_and_the_architecture_fits_its_limit() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
    assert len((ROOT / "ARCHITECTURE.md").read_text("utf-8").splitlines()) <= 320


def test_the_code_map_names_every_package_and_nothing_else() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    code_map = text.partition("## Code map")[2].partition("## Invariants")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", code_map, re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"`([\w.]+)`", cell)}
    packages = {
        p.name.removesuffix(".py")
        for p in (ROOT / "src" / "weir").iterdir()
        if (p / "__init__.py").exists() or (p.suffix == ".py" and p.stem != "__init__")
    }
    modules = {p.stem for p in (ROOT / "src" / "weir").rglob("*.py")} | packages
    modules |= {p.parent.name for p in (ROOT / "src" / "weir").rglob("__init__.py")}
    assert packages - {name.split(".")[0] for name in named} == set()
    assert {part for name in named for part in name.split(".")} - modules == set()


def test_the_changelog_tells_the_state_format_of_every_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert releases
    assert all("### State format" in release for release in releases)
