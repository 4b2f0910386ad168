"""Rich display of artifacts and reports in notebooks: plain HTML tables without external resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; cells are escaped."""
    head = "".join(f"<th style='{_CELL}'>{escape(h)}</th>" for h in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='{_CELL}'>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def section(title: str, *parts: str) -> str:
    """A titled section; the parts are HTML already."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
