"""What stories measured, for a table at the end of a run. Nothing is judged by it: a busy machine is no failure."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(slots=True)
class Figures:
    """Rows of what was measured, its value with a unit, and what is meant to hold on a quiet machine."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def add(self, what: str, value: str, aim: str = "") -> None:
        """A row of the table."""
        self.rows.append((what, value, aim))

    def seconds(self, what: str, value: float, most: float | None = None) -> None:
        """A row with a time, and how long it may take."""
        self.add(what, f"{value:.2f} s", "" if most is None else f"at most {most:g} s")

    def table(self) -> str:
        """Columns of equal width."""
        rows = [("what", "found", "aim"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


FIGURES: Final = Figures()
"""Those of this run."""
