"""Pictures of matrix instructions: which lane holds which element, as text and as SVG."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape

from ..core.spelling import did_you_mean
from ..errors import UsageError
from ..kernels.tile.instruction import Fragments
from ..kernels.tile.layout import Layout
from ..targets import Target, backend_of

_PARTS = (("a", "m", "k"), ("b", "n", "k"), ("d", "m", "n"))
_SCALES = (("a_scale", "m", "s"), ("b_scale", "n", "s"))  # for an instruction with block scales along K
_CELL = 30  # points, the side of a cell


def fragments(target: Target, name: str) -> tuple[str, Fragments]:
    """The name and fragments of a target's instruction. `name` is its name in qmlir or in IREE.

    Raises:
        UsageError: no built-in kernel of the target uses such an instruction; the message names similar ones, or all.
    """
    known = backend_of(target).matrix_instructions(target)
    if not known:
        why = backend_of(target).no_layouts
        raise UsageError(f"{target.spelling} has no matrix instruction whose layout is known{why and f': {why}'}")
    for own, (alias, found) in known.items():
        if name.casefold() in (own.casefold(), alias.casefold()):
            return own, found
    near = did_you_mean(name, [spelling for own, (alias, _) in known.items() for spelling in (own, alias)])
    raise UsageError(f"{target.spelling}: no matrix instruction {name!r} with a built-in kernel{near}")


def text(name: str, shown: Fragments) -> str:
    """Tables of `lane.value` for a, b and d. Neighbours in a row that are neighbours in a lane share a cell."""
    m, n, k = shown.shape
    lines = [f"{name}: d[{m}, {n}] += a[{m}, {k}] * b[{k}, {n}], {shown.lanes} lanes", "cells: lane.value"]
    for part, rows, columns in _parts(shown):
        layout = getattr(shown, part)
        bits = "; ".join(f"{i} = {' '.join(_spelled(layout, i))}" for i in ("lane", "value"))
        lines += ["", f"{part}[{rows}, {columns}]   lowest bit first: {bits}"]
        run, cells = _neighbours(layout, columns), _held(layout, rows, columns)
        head = [_run(c, run) for c in range(0, layout.extent(columns), run)]
        table = [
            [_cell(cells[r, c], run) for c in range(0, layout.extent(columns), run)] for r in range(layout.extent(rows))
        ]
        width = max(len(cell) for row in (head, *table) for cell in row)
        lines.append(f"{columns:>4} " + " ".join(cell.rjust(width) for cell in head))
        lines += [f"{rows}{r:<3} " + " ".join(cell.rjust(width) for cell in row) for r, row in enumerate(table)]
    return "\n".join(lines)


def svg(name: str, shown: Fragments) -> str:
    """The same as a picture, with a colour for each lane: b above d, and a on its left, as in a matrix product.
    Neighbours in a lane share a box. The picture loads no other file."""
    m, n, k = shown.shape
    along = max(_CELL / 2, 40 / min(_neighbours(shown.a, "k"), _neighbours(shown.b, "k")))  # points per element along K
    left, top = 40 + k * along + 30, 60 + k * along + 30
    parts = [_text(12, 24, f"{name}: d[{m}, {n}] += a[{m}, {k}] * b[{k}, {n}]", 15),
             _text(12, 40, "in a box: lane.value", 11)]  # fmt: skip
    # Scales of rows are on the right of the result, those of columns below it.
    right, below = left + n * _CELL + 20, top + m * _CELL + 20
    for part, rows, columns in _parts(shown):
        layout = getattr(shown, part)
        run, cells = _neighbours(layout, columns), _held(layout, rows, columns)
        x0 = {"a": 40.0, "a_scale": right}.get(part, left)
        y0 = {"b": 60.0, "b_scale": below + 10}.get(part, top)
        width = along if columns == "k" else _CELL
        transposed = part in ("b", "b_scale")  # its columns go downwards
        parts.append(_text(x0, y0 - 6, f"{part}[{f'{columns}, {rows}' if transposed else f'{rows}, {columns}'}]", 12))
        for (row, column), holders in sorted(cells.items()):
            if column % run:
                continue
            x, y, w, h = column * width, row * _CELL, run * width, _CELL
            if transposed:
                x, y, w, h = y, x, h, w
            fill = _colour(holders[0][0], shown.lanes)
            parts.append(f'<path d="M{x0 + x:g} {y0 + y:g}h{w:g}v{h:g}h{-w:g}z" fill="{fill}"/>')
            parts.append(f'<text x="{x0 + x + w / 2:g}" y="{y0 + y + h / 2 + 3:g}">{_cell(holders, run)}</text>')
    margin = shown.blocks * _CELL + 50 if shown.blocks else 0
    wide, high = right + margin, below + margin
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" '
            f'height="{high:g}" font-family="Helvetica, Arial, sans-serif" font-size="9" text-anchor="middle" '
            f'stroke-width="0.5"><style>path{{stroke:#888}}</style><rect width="100%" height="100%" fill="#fff"/>'
            f'{"".join(parts)}</svg>\n')  # fmt: skip


def to_json(name: str, shown: Fragments) -> Mapping[str, object]:
    """The shape, the lanes, and for each matrix the element bits that bits of lanes and values are, lowest first."""
    tables = {part: {i: _spelled(getattr(shown, part), i) for i in ("lane", "value")} for part, _, _ in _parts(shown)}
    return {"instruction": name, "shape": list(shown.shape), "lanes": shown.lanes, **tables}


def _parts(shown: Fragments) -> tuple[tuple[str, str, str], ...]:
    return _PARTS if not shown.blocks else (*_PARTS, *_SCALES)


def _neighbours(layout: Layout, axis: str) -> int:
    """The number of neighbours along an axis that are consecutive values of one lane."""
    values = layout["value"]
    return 1 << next((i for i, bit in enumerate(values) if bit != (axis, i)), len(values))


def _spelled(layout: Layout, name: str) -> list[str]:
    return ["." if bit is None else f"{bit[0]}{bit[1]}" for bit in layout[name]]


def _held(layout: Layout, rows: str, columns: str) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """For each element the lanes that contain it, with the index of its value in each."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for lane, value in itertools.product(range(layout.size("lane")), range(layout.size("value"))):
        place = (layout.place(rows, lane=lane, value=value), layout.place(columns, lane=lane, value=value))
        found.setdefault(place, []).append((lane, value))
    # Several lanes have registers for a scale; the instruction reads the first one.
    return {place: holders[:1] for place, holders in found.items()} if columns == "s" else found


def _run(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _cell(holders: Sequence[tuple[int, int]], run: int) -> str:
    """`lane.value`; lanes with the same element are joined by a plus."""
    return f"{'+'.join(str(lane) for lane, _ in holders)}.{_run(holders[0][1], run)}"


def _colour(lane: int, lanes: int) -> str:
    """A light colour. Hues go around the colour wheel; neighbouring lanes differ in lightness."""
    hue = lane * 360 // lanes
    return f"hsl({hue}, 65%, {86 - 10 * (lane % 2)}%)"


def _text(x: float, y: float, words: str, size: int) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="start">{escape(words)}</text>'
