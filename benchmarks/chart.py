"""The chart of workload (a) as SVG: speeds by that of Weir, text as text, light and dark."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from benchmarks import plan
from benchmarks.aims import Cells, relative

WORKLOAD = "a-100k"
REFERENCE = "weir-hashmap"
WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 820, 300, 90, 64, 30, 18
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; font-size: 15px; }
  .small { font-size: 11px; fill: #656d76; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .weir { fill: #1a7f64; } .floor { fill: #8c959f; } .peer { fill: #5b7bb4; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #8d96a0; } .grid { stroke: #30363d; }
    .weir { fill: #3fb68b; } .floor { fill: #6e7681; } .peer { fill: #7d9fd6; }
  }
"""


def bars(cells: Cells) -> list[tuple[str, str, float]]:
    """Return titles, kinds and relative speeds of what was measured, fastest first."""
    found = []
    for contender in plan.CONTENDERS:
        speed = relative(cells, contender.name, REFERENCE, WORKLOAD)
        if speed is not None:
            family = contender.name.split("-")[0]
            kind = family if family == "weir" else "floor" if family == "identity" else "peer"
            found.append((contender.title, kind, speed))
    return sorted(found, key=lambda bar: -bar[2])


def render(cells: Cells, note: str) -> str:
    """Return the chart; without figures it says so."""
    found = bars(cells)
    height = TOP + STEP * max(1, len(found)) + 40
    label = f"Speed by that of {plan.CONTENDER[REFERENCE].title}: {plan.title_of(WORKLOAD)}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(label)}">',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="12" y="24">{escape(label)}</text>',
        f'<text class="small" x="12" y="42">{escape(note)}; logarithmic scale</text>',
    ]
    if found:
        lines += axis(found, height) + marks(found)
    else:
        lines.append(f'<text x="12" y="{TOP + 16}">nothing was measured</text>')
    return "\n".join([*lines, "</svg>", ""])


def scale(found: list[tuple[str, str, float]]) -> tuple[int, int]:
    """Return the powers of ten that enclose all speeds."""
    low = math.floor(math.log10(min(bar[2] for bar in found)))
    high = math.ceil(math.log10(max(bar[2] for bar in found)))
    return low, max(high, low + 1)


def position(speed: float, low: int, high: int) -> float:
    """Return where a speed lies on the axis."""
    share = (math.log10(speed) - low) / (high - low)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def axis(found: list[tuple[str, str, float]], height: int) -> list[str]:
    """Return the lines of the powers of ten."""
    low, high = scale(found)
    lines = []
    for power in range(low, high + 1):
        x = position(10.0**power, low, high)
        lines.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 28}"/>'
        )
        lines.append(
            f'<text class="small" text-anchor="middle" x="{x:.1f}" y="{height - 12}">'
            f"{10.0**power:g}</text>"
        )
    return lines


def marks(found: list[tuple[str, str, float]]) -> list[str]:
    """Return the bars with their names and figures."""
    low, high = scale(found)
    lines = []
    for row, (title, kind, speed) in enumerate(found):
        y = TOP + row * STEP
        x = position(speed, low, high)
        width = max(1.0, x - LEFT)
        base = y + BAR - 4
        lines.append(f'<text text-anchor="end" x="{LEFT - 10}" y="{base}">{escape(title)}</text>')
        lines.append(
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3"/>'
        )
        lines.append(f'<text x="{x + 6:.1f}" y="{base}">{speed:.2g}</text>')
    return lines
