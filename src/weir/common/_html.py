"""Small tables for notebooks; every text in them is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def facts(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a title and named values; those that are None are left out."""
    shown = [(name, value) for name, value in rows if value is not None]
    lines = [f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in shown]
    return f"<b>{_text(title)}</b><table>{''.join(lines)}</table>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows under the names of their columns; None is an empty cell."""
    first = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = ["".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><tr>{first}</tr>{body}</table>"


def _text(value: object) -> str:
    return "" if value is None else escape(str(value))
