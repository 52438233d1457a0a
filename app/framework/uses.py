"""Access of plugins to objects of the cluster: declared by plugins, collected by the runtime, granted by a role."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from app.kube.kinds import Kind


class Use(Struct, frozen=True):
    """A plugin lists and watches a kind. ``looks_up``: it has single objects read as well, which a watch may lack.

    ``writes``: what it writes on them, for a person; empty: nothing · ``whole``: it makes and deletes them as well.
    """

    plugin: str
    kind: Kind[Any]
    looks_up: bool = False
    writes: str = ""
    whole: bool = False
