"""Formatter of plain text tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.commands.output import escaped


def lines(columns: Sequence[str], rows: Iterable[Sequence[object]], *, headers: bool = True) -> list[str]:
    """Return the lines of a table: the column names in upper case, then the rows.

    Booleans become yes and no, and unprintable characters are escaped. Without ``headers``, the column names are left
    out.
    """
    named = [tuple(column.upper() for column in columns)] if headers else []
    cells = [*named, *(tuple(map(_text, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return escaped(str(value))
