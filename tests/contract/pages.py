"""Read tables and code blocks of Markdown pages."""

from __future__ import annotations

import re
from pathlib import Path


def rows(page: str, head: str) -> list[list[str]]:
    """Return the rows of each table whose first column is called ``head``."""
    found = []
    for table in page.split(f"| {head} |")[1:]:
        for line in table.splitlines()[2:]:
            if not line.startswith("|"):
                break
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def ticked(cell: str) -> list[str]:
    """Return what stands between backticks."""
    return re.findall(r"`([^`]+)`", cell)


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a language, without the indent of the list they stand in."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]


def blocks_of(path: Path, language: str) -> list[str]:
    return blocks(path.read_text(encoding="utf-8"), language)
