"""Plain text tables."""

from __future__ import annotations

from app.commands.table import lines


def test_columns_are_as_wide_as_their_widest_cell_and_no_line_ends_in_blanks() -> None:
    rows = [("n1", 10, True), ("node-long", 2, False), ("", "", "")]

    assert [
        "NODE       PODS  FITS",
        "n1         10    yes",
        "node-long  2     no",
        "",
    ] == lines(("node", "pods", "fits"), rows)


def test_without_rows_there_is_the_head() -> None:
    assert ["NODE  PODS"] == lines(("node", "pods"), [])


def test_unprintable_characters_are_escaped() -> None:
    assert ["a\\x1b[2J\\n  1"] == lines(("name", "pods"), [("a\x1b[2J\n", 1)], headers=False)
