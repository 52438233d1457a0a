"""A listener on loopback, for servers that a test or a bench runs itself."""

from __future__ import annotations

from typing import Any

from app.server.access import ListenerAccess
from app.server.listener import Listener, TurnedAway, listen


def _unheard(_listener: str, _cause: str) -> None:
    """Nobody counts."""


def on_loopback(
    web: Any, port: int = 0, *, most: int = 2000, turned_away: TurnedAway = _unheard, gives_way: bool = False
) -> Listener:
    """Plain HTTP, for whoever asks this machine by its own name; port 0 takes a free one."""
    access = ListenerAccess("verbs", loopback=True)
    return Listener(listen("127.0.0.1", port), web, access, most=most, turned_away=turned_away, gives_way=gives_way)
