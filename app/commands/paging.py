"""Reads lists that Homeport returns in several answers.

The kubectl plugin for krew contains this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.commands.service import Pages


def all_pages(server: Pages, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Return the list at ``path`` as one answer, with all items and without ``next``. Raises ``CommandError``."""
    answer = server.get(path, query)
    following = answer["next"]
    while following is not None:
        page = server.get(path, {**query, "start": str(following)})
        answer["items"] += page["items"]
        following = page["next"]
    return {name: value for name, value in answer.items() if name != "next"}
