"""Reader of lists that a page of Homeport returns in parts.

Like ``home_list``, this module is part of the kubectl plugin for krew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.commands.service import Pages


def all_pages(server: Pages, path: str, query: Mapping[str, str]) -> dict[str, Any]:
    """Return a list with the items of all its pages, without ``next``. Raises ``CommandError``."""
    answer = server.get(path, query)
    following = answer["next"]
    while following is not None:
        page = server.get(path, {**query, "start": str(following)})
        answer["items"] += page["items"]
        following = page["next"]
    return {name: value for name, value in answer.items() if name != "next"}
