"""mkdocs hooks: the navigation of generated folders, and links that leave the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """Replace a folder's name in capitals (`SCHEMES`) in the navigation by its pages, the index first."""
    for entry in config.nav:
        for title, value in entry.items():
            if isinstance(value, str) and value.isupper():
                folder = value.lower()
                pages = sorted(p.name for p in (DOCS / folder).glob("*.md") if p.name != "index.md")
                entry[title] = [f"{folder}/index.md", *(f"{folder}/{name}" for name in pages)]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links to files of the repository outside of the documentation by their paths."""
    here = (DOCS / page.file.src_uri).parent

    def plain(found: re.Match[str]) -> str:
        path = found[2].partition("#")[0]
        there = (here / path).resolve()
        if not path or re.match(r"[a-z]+:", path) or there.is_relative_to(DOCS):
            return found[0]
        return f"{found[1]} (`{there.relative_to(DOCS.parent)}`)"

    return LINK.sub(plain, markdown)
