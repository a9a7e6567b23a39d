"""Renders the tables of the guide on moving PyFlink programs from the facts that `weir check` uses.

`python tests/docs/moving_page.py --write` puts them between the marks in
`docs/guides/moving-a-pyflink-program.md`; `test_reference.py` compares.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from weir.moving.facts import DIFFERENT, IGNORED, REFUSED, Fact

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "moving-a-pyflink-program.md"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    columns = list(head)
    return "\n".join([f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *lines])


def pairs(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    return [(fact.topic, fact.text) for fact in facts]


TABLES = {
    "different": table(
        ("topic", "PyFlink", "Weir"), [(f.topic, f.pyflink, f.text) for f in DIFFERENT]
    ),
    "refused": table(("you use", "you get"), pairs(REFUSED)),
    "ignored": table(("you use", "why it changes nothing"), pairs(IGNORED)),
}


def render(page: str) -> str:
    """Return a page with the tables of now between its marks."""
    for name, text in TABLES.items():
        marked = re.compile(rf"(<!-- facts: {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        page, count = marked.subn(lambda m, text=text: m[1] + text + m[2], page)
        if count != 1:
            msg = f"{PAGE} has {count} places for the table {name!r}, expected 1"
            raise SystemExit(msg)
    return page


if __name__ == "__main__":
    rendered = render(PAGE.read_text("utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(rendered, "utf-8")
    else:
        sys.stdout.write(rendered)
