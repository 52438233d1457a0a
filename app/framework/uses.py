"""Access of plugins to kinds of objects: declared by plugins, collected by the engine, granted by a role."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.kube.kinds import Kind


class Use(Struct, frozen=True):
    """Access that a plugin needs to a kind. Homeport lists and watches the kind.

    ``looks_up``: True if single objects are also read from the API server, because the watch might not have delivered
    them yet. ``writes``: the plugin's writes, described for users; empty if there are none. ``whole``: True if the
    plugin also creates and deletes objects.
    """

    plugin: str
    kind: Kind[Any]
    looks_up: bool = False
    writes: str = ""
    whole: bool = False
