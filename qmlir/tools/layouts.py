"""Pictures of matrix instructions: which lane holds which element, as text and as SVG."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape

from ..core.spelling import did_you_mean
from ..errors import UsageError
from ..kernels.tile.instruction import Fragments
from ..kernels.tile.layout import Layout
from ..targets import Target

_PARTS = (("a", "m", "k"), ("b", "n", "k"), ("d", "m", "n"))
_CELL = 26  # points
_INK = "#222222"


def fragments(target: Target, name: str) -> tuple[str, Fragments]:
    """The instruction of a target that `name` is, or that IREE calls so.

    Raises:
        UsageError: where built-in kernels of the target use none of the name; names those that they use.
    """
    known = target.matrix_instructions()
    if not known:
        why = ": of cooperative matrices only the driver knows it" if target.backend == "vulkan" else ""
        raise UsageError(f"{target.spelling} has no matrix instruction whose layout is known{why}")
    for own, (alias, found) in known.items():
        if name.casefold() in (own.casefold(), alias.casefold()):
            return own, found
    near = did_you_mean(name, [spelling for own, (alias, _) in known.items() for spelling in (own, alias)])
    raise UsageError(f"{target.spelling}: no matrix instruction {name!r} with a built-in kernel{near}")


def text(name: str, shown: Fragments) -> str:
    """Tables `lane.value` of a, b and d; where neighbours along a row are neighbours in a lane, their run."""
    m, n, k = shown.shape
    lines = [f"{name}: d[{m}, {n}] += a[{m}, {k}] * b[{k}, {n}], {shown.lanes} lanes", "cells: lane.value"]
    for part, rows, columns in _PARTS:
        layout = getattr(shown, part)
        bits = "; ".join(f"{i} = {' '.join(_spelled(layout, i))}" for i in ("lane", "value"))
        lines += ["", f"{part}[{rows}, {columns}]   lowest bit first: {bits}"]
        run = 1 << next((i for i, bit in enumerate(layout["value"]) if bit != (columns, i)), len(layout["value"]))
        cells = _held(layout, rows, columns)
        head = [_run(c, run) for c in range(0, layout.extent(columns), run)]
        table = [
            [_cell(cells[r, c], run) for c in range(0, layout.extent(columns), run)] for r in range(layout.extent(rows))
        ]
        width = max(len(cell) for row in (head, *table) for cell in row)
        lines.append(f"{columns:>4} " + " ".join(cell.rjust(width) for cell in head))
        lines += [f"{rows}{r:<3} " + " ".join(cell.rjust(width) for cell in row) for r, row in enumerate(table)]
    return "\n".join(lines)


def svg(name: str, shown: Fragments) -> str:
    """The same in colours, one for each lane; no file is loaded by it."""
    m, n, k = shown.shape
    places = {"b": (1, 0), "a": (0, 1), "d": (1, 1)}  # b above d, a on its left, as matrices are multiplied
    left, top = 40 + k * _CELL + 40, 60 + k * _CELL + 40
    parts = [_text(12, 24, f"{name}: d[{m}, {n}] += a[{m}, {k}] * b[{k}, {n}]; cells: lane.value", 15, "start")]
    for part, rows, columns in _PARTS:
        layout = getattr(shown, part)
        cells = _held(layout, rows, columns)
        across, down = places[part]
        x0, y0 = left if across else 40, top if down else 60
        parts.append(_text(x0, y0 - 8, f"{part}[{'k, n' if part == 'b' else f'{rows}, {columns}'}]", 13, "start"))
        for (row, column), holders in cells.items():
            i, j = (column, row) if part == "b" else (row, column)
            x, y = x0 + j * _CELL, y0 + i * _CELL
            lane, value = holders[0]
            fill = _colour(lane, shown.lanes)
            parts.append(f'<rect x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" fill="{fill}" stroke="#888888" '
                         'stroke-width="0.5"/>')  # fmt: skip
            parts.append(_text(x + _CELL / 2, y + _CELL / 2 + 3, f"{lane}.{value}", 8, "middle"))
    width, height = left + n * _CELL + 20, top + m * _CELL + 20
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="Helvetica, Arial, sans-serif">'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n')  # fmt: skip


def to_json(name: str, shown: Fragments) -> Mapping[str, object]:
    """Shape, lanes, and of each matrix the bits that lanes and values stand for, lowest first."""
    tables = {part: {i: _spelled(getattr(shown, part), i) for i in ("lane", "value")} for part, _, _ in _PARTS}
    return {"instruction": name, "shape": list(shown.shape), "lanes": shown.lanes, **tables}


def _spelled(layout: Layout, name: str) -> list[str]:
    return ["." if bit is None else f"{bit[0]}{bit[1]}" for bit in layout[name]]


def _held(layout: Layout, rows: str, columns: str) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Of each element the lanes that hold it, with the value that it is in them."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for lane, value in itertools.product(range(layout.size("lane")), range(layout.size("value"))):
        place = (layout.place(rows, lane=lane, value=value), layout.place(columns, lane=lane, value=value))
        found.setdefault(place, []).append((lane, value))
    return found


def _run(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _cell(holders: Sequence[tuple[int, int]], run: int) -> str:
    """`lane.value`, lanes that hold the same joined by a plus."""
    return f"{'+'.join(str(lane) for lane, _ in holders)}.{_run(holders[0][1], run)}"


def _colour(lane: int, lanes: int) -> str:
    """Light colours around the circle; neighbouring lanes differ."""
    hue = lane * 360 // lanes
    return f"hsl({hue}, 65%, {86 - 10 * (lane % 2)}%)"


def _text(x: float, y: float, words: str, size: int, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{_INK}">{escape(words)}</text>'
