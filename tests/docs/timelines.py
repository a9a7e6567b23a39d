"""Draws timelines as SVG: lanes over one axis of time, legible on light and on dark pages.

A lane has events (dots with names), spans (bars with names) and links between moments. What is in
the lanes is found out by `pictures.py`, which runs the program that a picture shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

WIDTH, LEFT, RIGHT = 900, 190, 34
TOP, ROW, GAP = 20, 30, 12
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .card { fill: #ffffff; } .small { font-size: 11.5px; fill: #59636e; }
  .grid { stroke: #d0d7de; stroke-width: 1; } .axis { stroke: #59636e; stroke-width: 1.5; }
  .event { fill: #5b7bb4; } .other { fill: #b4602c; }
  .span { fill: #e3f4ee; stroke: #1a7f64; } .faint { fill: none; stroke: #8c959f; }
  .late { fill: #fbe9e7; stroke: #b3402e; }
  .link { stroke: #1a7f64; stroke-width: 2; fill: none; } .fires { fill: #1a7f64; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .card { fill: #0d1117; } .small { fill: #9198a1; }
    .grid { stroke: #30363d; } .axis { stroke: #9198a1; }
    .event { fill: #7d9fd6; } .other { fill: #e0935f; }
    .span { fill: #10352b; stroke: #3fb68b; } .faint { stroke: #656c76; }
    .late { fill: #3d1a16; stroke: #e0735f; }
    .link { stroke: #3fb68b; } .fires { fill: #3fb68b; }
  }
"""


@dataclass(frozen=True)
class Event:
    """A moment with a name; `kind` is its colour: event, other, or fires for a result."""

    at: float
    name: str = ""
    kind: str = "event"


@dataclass(frozen=True)
class Span:
    """Time from a start up to an end; `kind` is span, faint or late."""

    start: float
    end: float
    name: str = ""
    kind: str = "span"


@dataclass(frozen=True)
class Chain:
    """Moments that belong together, one after the other, and what they are called."""

    moments: tuple[float, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Lane:
    """A row of the picture, or several where its spans overlap; marks stand on its first row."""

    title: str
    marks: tuple[Event | Span | Chain, ...] = ()


@dataclass(frozen=True)
class Link:
    """A line from a moment of one lane to a moment of another."""

    from_lane: int
    from_at: float
    to_lane: int
    to_at: float


@dataclass(frozen=True)
class Picture:
    """Lanes over an axis from `start` to `end`; `moments` names the ticks, else they are times."""

    about: str
    start: float
    end: float
    lanes: tuple[Lane, ...]
    links: tuple[Link, ...] = ()
    step: int = 1
    moments: tuple[str, ...] = ()

    def x(self, at: float) -> float:
        """Return where a moment lies; what is beyond the axis lies at its end."""
        inside = min(max(at, self.start), self.end)
        return LEFT + (inside - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)


def rows_of(lane: Lane) -> list[list[Span | Chain]]:
    """Deal the spans and chains of a lane to rows, so that none overlaps another."""
    rows: list[list[Span | Chain]] = []
    for mark in lane.marks:
        if isinstance(mark, Event):
            continue
        for row in rows:
            if _end(row[-1]) <= _start(mark):
                row.append(mark)
                break
        else:
            rows.append([mark])
    return rows or [[]]


def _start(mark: Span | Chain) -> float:
    return mark.start if isinstance(mark, Span) else mark.moments[0]


def _end(mark: Span | Chain) -> float:
    # Two chains never share a row: the end of the one would look like the start of the other.
    return mark.end if isinstance(mark, Span) else float("inf")


def render(picture: Picture) -> str:
    """Return the picture."""
    tops, y = [], TOP + 30
    for lane in picture.lanes:
        tops.append(y)
        y += len(rows_of(lane)) * ROW + GAP
    y += 4
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" role="img" aria-label={quoteattr(picture.about)}>',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0" y="0" width="{WIDTH}" height="{y}" rx="8"/>',
        *_axis(picture, y),
    ]
    for link in picture.links:
        ends = [picture.x(link.from_at), tops[link.from_lane] + ROW / 2]
        ends += [picture.x(link.to_at), tops[link.to_lane] + ROW / 2]
        a, b, c, d = (f"{n:.1f}" for n in ends)
        lines.append(f'<line class="link" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>')
    for lane, top in zip(picture.lanes, tops, strict=True):
        lines += _lane(picture, lane, top)
    return "\n".join([*lines, "</svg>", ""])


def _axis(picture: Picture, height: int) -> Iterator[str]:
    y = TOP + 16
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
    ticks = range(int(picture.start), int(picture.end) + 1, picture.step)
    for number, at in enumerate(ticks):
        x = f"{picture.x(at):.1f}"
        name = str(at)
        if picture.moments:
            name = picture.moments[number] if number < len(picture.moments) else ""
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{y}" y2="{height - 8}"/>'
        middle = f'class="small" text-anchor="middle" x="{x}" y="{TOP + 6}"'
        yield f"<text {middle}>{escape(name)}</text>"


def _lane(picture: Picture, lane: Lane, top: int) -> Iterator[str]:
    for number, title in enumerate(lane.title.split("\n")):
        kind = ' class="small"' if number else ""
        yield f'<text{kind} x="14" y="{top + 19 + 15 * number}">{escape(title)}</text>'
    for number, row in enumerate(rows_of(lane)):
        for mark in row:
            drawn = _span if isinstance(mark, Span) else _chain
            yield from drawn(picture, mark, top + number * ROW)
    for mark in lane.marks:
        if isinstance(mark, Event):
            yield from _event(picture, mark, top)


def _span(picture: Picture, span: Span, top: int) -> Iterable[str]:
    x, end = picture.x(span.start), picture.x(span.end)
    yield (
        f'<rect class="{span.kind}" x="{x + 1:.1f}" y="{top + 2}" width="{end - x - 2:.1f}" '
        f'height="{ROW - 6}" rx="4"/>'
    )
    yield (
        f'<text text-anchor="middle" x="{(x + end) / 2:.1f}" y="{top + 18}">'
        f"{escape(span.name)}</text>"
    )


def _chain(picture: Picture, chain: Chain, top: int) -> Iterable[str]:
    xs = [picture.x(at) for at in chain.moments]
    yield (
        f'<line class="link" x1="{xs[0]:.1f}" x2="{xs[-1]:.1f}" '
        f'y1="{top + ROW / 2}" y2="{top + ROW / 2}"/>'
    )
    for x, name in zip(xs, chain.names, strict=True):
        yield f'<circle class="card" cx="{x:.1f}" cy="{top + ROW / 2}" r="12"/>'
        yield f'<circle class="span" cx="{x:.1f}" cy="{top + ROW / 2}" r="12"/>'
        yield f'<text text-anchor="middle" x="{x:.1f}" y="{top + 19}">{escape(name)}</text>'


def _event(picture: Picture, event: Event, top: int) -> Iterable[str]:
    x, y = picture.x(event.at), top + ROW / 2
    if event.kind == "fires":
        yield f'<path class="fires" d="M{x:.1f} {y + 5} l-6 -10 h12 Z"/>'
    else:
        yield f'<circle class="{event.kind}" cx="{x:.1f}" cy="{y}" r="5"/>'
    yield f'<text class="small" x="{x + 8:.1f}" y="{y + 4}">{escape(event.name)}</text>'
