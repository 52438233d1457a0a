"""Draws the ratios of the matrix as SVG: one panel for each number of nodes, one line for each workload and system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log2
from typing import Final
from xml.sax.saxutils import escape

from msgspec import Struct

_WIDTH: Final = 290
_HEIGHT: Final = 260
_LEFT: Final = 46
_TOP: Final = 64
_GAP: Final = 24
_BELOW: Final = 108
_COLORS: Final = ("#0b62a4", "#b3401c", "#2e7d32", "#7b3fa0", "#5d4a00", "#00696b")
_SHAPES: Final = ("circle", "square", "up", "diamond", "down", "bar")
_NAMES: Final = {"homeport": "delegated", "pick": "complete with pick"}
_DASHES: Final = {"pick": ' stroke-dasharray="5 4"'}
_TITLE: Final = "Pods scheduled per second with Homeport, divided by those with the in-tree plugin"


class Line(Struct, frozen=True):
    """Ratios of one workload and system by pods per node, in clusters with this number of nodes."""

    nodes: int
    workload: str
    system: str
    points: Mapping[int, float]


class _Scale(Struct, frozen=True):
    """Positions in a panel. The x axis has one step for each fill; the y axis is logarithmic."""

    fills: Sequence[int]
    low: int
    high: int

    def x(self, fill: int) -> float:
        return 22 + self.fills.index(fill) * (_WIDTH - 44) / max(1, len(self.fills) - 1)

    def y(self, ratio: float) -> float:
        return round(_HEIGHT * (1 - (log2(ratio) - self.low) / (self.high - self.low)), 1)


def draw(lines: Sequence[Line]) -> str:
    """Return the drawing. Each panel has all lines of one number of nodes."""
    drawn = [it for it in lines if any(ratio > 0 for ratio in it.points.values())]
    ratios = [ratio for it in drawn for ratio in it.points.values() if ratio > 0] or [1.0]
    fills = sorted({fill for it in drawn for fill in it.points})
    scale = _Scale(fills, min(-1, floor(log2(min(ratios)))), max(1, ceil(log2(max(ratios)))))
    nodes = sorted({it.nodes for it in drawn})
    workloads = list(dict.fromkeys(it.workload for it in drawn))
    width = _LEFT + max(1, len(nodes)) * (_WIDTH + _GAP)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_TOP + _HEIGHT + _BELOW}" role="img"'
            ' font-family="system-ui, sans-serif" font-size="12" fill="#222">'
        ),
        f"<title>{_TITLE}</title>",
        '<rect width="100%" height="100%" rx="6" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" font-size="14" font-weight="600">{_TITLE}</text>',
    ]
    for number, count in enumerate(nodes):
        parts.append(f'<g transform="translate({_LEFT + number * (_WIDTH + _GAP)} {_TOP})">')
        parts += _axes(scale, count, with_labels=number == 0)
        for line in drawn:
            if line.nodes == count:
                parts += _line(scale, line, workloads.index(line.workload))
        parts.append("</g>")
    parts += _legend(workloads, [it for it in _NAMES if any(line.system == it for line in drawn)])
    return "\n".join([*parts, "</svg>", ""])


def _axes(scale: _Scale, nodes: int, *, with_labels: bool) -> Iterator[str]:
    yield f'<text y="-10" font-weight="600">{nodes:,} nodes</text>'
    for power in range(scale.low, scale.high + 1):
        y = scale.y(2.0**power)
        style = 'stroke="#222" stroke-width="1.5"' if power == 0 else 'stroke="#ddd"'
        yield f'<line x2="{_WIDTH}" y1="{y}" y2="{y}" {style}/>'
        if with_labels:
            yield f'<text x="-8" y="{y + 4}" text-anchor="end">{2.0**power:g}</text>'
    for fill in scale.fills:
        yield f'<text x="{scale.x(fill):.1f}" y="{_HEIGHT + 18}" text-anchor="middle">{fill}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT + 36}" text-anchor="middle">existing pods on each node</text>'


def _line(scale: _Scale, line: Line, number: int) -> Iterator[str]:
    color = _COLORS[number % len(_COLORS)]
    places = [(scale.x(fill), scale.y(ratio)) for fill, ratio in sorted(line.points.items()) if ratio > 0]
    path = " ".join(f"{x:.1f},{y}" for x, y in places)
    dashes = _DASHES.get(line.system, "")
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>'
    for x, y in places:
        yield _mark(number, x, y, color)


def _mark(number: int, x: float, y: float, color: str) -> str:
    shapes = {
        "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        "square": "M-3.5-3.5h7v7h-7z",
        "up": "M0-4.5L4.5 3.5h-9z",
        "diamond": "M0-5L4.5 0 0 5-4.5 0z",
        "down": "M0 4.5L4.5-3.5h-9z",
        "bar": "M-4.5-2h9v4h-9z",
    }
    return f'<path transform="translate({x:.1f} {y})" d="{shapes[_SHAPES[number % len(_SHAPES)]]}" fill="{color}"/>'


def _legend(workloads: Sequence[str], systems: Sequence[str]) -> Iterator[str]:
    y = _TOP + _HEIGHT + 62
    for number, workload in enumerate(workloads):
        x = _LEFT + 8 + number * 170
        yield _mark(number, x, y - 4, _COLORS[number % len(_COLORS)])
        yield f'<text x="{x + 12}" y="{y}">{escape(workload.replace("-", " "))}</text>'
    for number, system in enumerate(systems):
        x = _LEFT + number * 170
        dashes = _DASHES.get(system, "")
        yield f'<line x1="{x}" x2="{x + 30}" y1="{y + 22}" y2="{y + 22}" stroke="#222" stroke-width="2"{dashes}/>'
        yield f'<text x="{x + 38}" y="{y + 26}">{escape(_NAMES[system])}</text>'
