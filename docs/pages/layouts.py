"""Pictures of the layouts of codes and scales: plain SVG without external resources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

CELL = 22
COLOURS = ("#cfe0f3", "#f6d9bd", "#d5ead0", "#e7d6ee", "#f3e3b5", "#d3e8ea", "#f2cfd0", "#dddddd")
INK = "#222222"


@dataclass(frozen=True)
class Grid:
    """A matrix whose cells have the colour of the scale that they share.

    Attributes:
        block: rows and columns that share a scale, 0 for the whole axis; None without scales.
        axes: the labels next to the rows and above the columns.
    """

    title: str
    rows: int
    columns: int
    block: tuple[int, int] | None
    axes: tuple[str, str]
    zeros: tuple[tuple[int, int], ...] = ()  # cells that are not stored


def svg_text(x: float, y: float, text: str, size: int = 12, anchor: str = "start", rotate: bool = False) -> str:
    turn = f' transform="rotate(-90 {x:g} {y:g})"' if rotate else ""
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{INK}"{turn}>'
            f"{escape(text)}</text>")  # fmt: skip


def _grid(grid: Grid, left: float, top: float) -> list[str]:
    parts = [svg_text(left, top - 26, grid.title, 13)]
    given = grid.block or (0, 0)
    per_row, per_column = (size or whole for size, whole in zip(given, (grid.rows, grid.columns), strict=True))
    across = -(-grid.columns // per_column)
    for i in range(grid.rows):
        for j in range(grid.columns):
            scale = i // per_row * across + j // per_column
            assert scale < len(COLOURS), "two scales would have the same colour"
            bare = grid.block is None or (i, j) in grid.zeros
            fill = "#ffffff" if bare else COLOURS[scale]
            parts.append(f'<rect x="{left + j * CELL:g}" y="{top + i * CELL:g}" width="{CELL}" height="{CELL}" '
                         f'fill="{fill}" stroke="#888888" stroke-width="0.6"/>')  # fmt: skip
    parts.append(svg_text(left + grid.columns * CELL / 2, top - 7, grid.axes[1], 11, "middle"))
    parts.append(svg_text(left - 7, top + grid.rows * CELL / 2, grid.axes[0], 11, "middle", rotate=True))
    return parts


def _fields(label: str, fields: Sequence[tuple[str, int]], left: float, top: float) -> list[str]:
    """The bits of bytes, the lowest on the right, as named fields."""
    bit = 17
    parts, x = [svg_text(left, top - 8, label, 12)], left
    for number, (name, bits) in enumerate(fields):
        parts.append(f'<rect x="{x:g}" y="{top:g}" width="{bits * bit}" height="26" fill="{COLOURS[number % 8]}" '
                     'stroke="#888888" stroke-width="0.8"/>')  # fmt: skip
        parts.append(svg_text(x + bits * bit / 2, top + 17, name, 11, "middle"))
        x += bits * bit
    return parts


def picture(
    grids: Sequence[Grid], words: Sequence[tuple[str, Sequence[tuple[str, int]]]], notes: Sequence[str] = ()
) -> str:
    """Draw matrices side by side, below them words of memory, and below these lines of text."""
    parts: list[str] = []
    x, tallest, widest = 34.0, 0, 300.0
    for grid in grids:
        parts += _grid(grid, x, 52)
        x += max(grid.columns * CELL, 7.5 * len(grid.title)) + 60
        tallest = max(tallest, grid.rows)
    widest, y = max(widest, x - 20), 52.0 + tallest * CELL
    for label, fields in words:
        y += 42
        parts += _fields(label, fields, 34, y)
        widest = max(widest, 34 + 17 * sum(bits for _, bits in fields) + 20, 34 + 7 * len(label))
        y += 26
    for note in notes:
        y += 22
        parts.append(svg_text(34, y, note, 12))
        widest = max(widest, 34 + 6.8 * len(note))
    height = y + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest:g} {height:g}" width="{widest:g}" '
            f'height="{height:g}" font-family="Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n')  # fmt: skip


def pipeline_picture() -> str:
    """The picture of the compilation pipeline."""
    boxes = [("torch, ONNX,", "checkpoints"), ("qmlir ops", "(MLIR)"), ("linalg", "one form each"),
             ("strategies of", "the target"), ("IREE", ""), (".vmfb", "with manifest")]  # fmt: skip
    below = ["import, raise", "verify, fold", "lower", "select", "kernels, codegen", ""]
    parts, x = [], 14.0
    for (first, second), text in zip(boxes, below, strict=True):
        parts.append(f'<rect x="{x:g}" y="20" width="128" height="54" rx="6" fill="#cfe0f3" stroke="#4878a8"/>')
        parts.append(svg_text(x + 64, 43 if second else 51, first, 13, "middle"))
        parts.append(svg_text(x + 64, 61, second, 11, "middle"))
        if text:
            parts.append(f'<path d="M{x + 128:g} 47 h22" stroke="{INK}" fill="none" marker-end="url(#a)"/>')
            parts.append(svg_text(x + 141, 94, text, 11, "middle"))
        x += 158
    arrow = ('<marker id="a" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
             f'<path d="M0 0 L6 3 L0 6 z" fill="{INK}"/></marker>')  # fmt: skip
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {x:g} 108" width="{x:g}" height="108" '
            f'font-family="Helvetica, Arial, sans-serif"><defs>{arrow}</defs>'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n')  # fmt: skip
