"""The fenced blocks of README and docs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_RUNS = ("execute", "execute_async", "execute_and_collect")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    """One fenced block; `output` is the `text` block behind it, None if there is none."""

    name: str
    language: str
    text: str
    output: str | None = None

    @property
    def is_program(self) -> bool:
        """Tell whether running the block needs Spark."""
        return any(f".{call}(" in self.text for call in _RUNS)

    @property
    def is_test(self) -> bool:
        """Tell whether the block holds test functions."""
        return "\ndef test_" in self.text


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, each with the output that follows it."""
    found = list(_fenced(page))
    for i, block in enumerate(found[:-1]):
        follows = found[i + 1]
        if block.language == "python" and follows.language == "text":
            found[i] = Block(block.name, block.language, block.text, follows.text)
    return found


def _fenced(page: Path) -> Iterator[Block]:
    language, lines, start = None, [], 0
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif language is None:
            language, lines, start = line[3:], [], number
        else:
            name = f"{page.relative_to(ROOT).as_posix()}:{start}"
            yield Block(name, language, "\n".join(lines) + "\n")
            language = None


def python_blocks() -> list[Block]:
    """Return all Python blocks of all pages."""
    return [b for page in PAGES for b in blocks_of(page) if b.language == "python"]
