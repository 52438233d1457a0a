"""Tells the log, and people, of homes that somebody else than Homeport changed, as the watch of their owners shows it.

Of homes that Homeport makes, ``recording`` tells.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from app.framework.events import EventRecorder
from app.kube.kinds import NAMESPACES, PERSISTENT_VOLUMES, AnnotatedObject, Kind
from plugins.sticky_node.events import edited
from plugins.sticky_node.home import HOME, HOME_POD, home_in, readable

_LOG: Final = structlog.get_logger(__name__)
_WITHOUT_ANNOTATIONS: Final = frozenset[Kind[Any]]((PERSISTENT_VOLUMES, NAMESPACES))
"""Kinds that are read for something else, and keep no homes."""

MOST_TOLD: Final = 50
"""Homes of one object that are told of when it changes: anybody who may edit it may write hundreds at once."""


def tell(kind: Kind[AnnotatedObject], old: AnnotatedObject, new: AnnotatedObject, recorder: EventRecorder) -> None:
    """One line, and one Event, for each home of the object that was given, moved or given up, ``MOST_TOLD`` at most."""
    if kind in _WITHOUT_ANNOTATIONS or old.annotations == new.annotations:
        return
    told = 0
    for key in sorted({*old.annotations, *new.annotations}):
        if key == HOME or key.startswith(f"{HOME}."):
            told += _tell_of(key.removeprefix(HOME), kind, old, new, recorder)
            if told == MOST_TOLD:
                return


def _tell_of(
    suffix: str, kind: Kind[AnnotatedObject], old: AnnotatedObject, new: AnnotatedObject, recorder: EventRecorder
) -> bool:
    """Whether there was anything to tell."""
    slot = suffix[1:]
    was, now = home_in(old, slot), home_in(new, slot)
    is_ours = old.annotations.get(f"{HOME_POD}{suffix}") != new.annotations.get(f"{HOME_POD}{suffix}")
    ordinal = f", ordinal {slot}" if slot else ""
    machine = f"{kind.kind} {new.namespace}/{new.name}{ordinal}"
    if was and not now:
        _LOG.info("home given up", machine=machine, node=readable(was))
    elif was == now or is_ours:
        return False
    elif was:
        _LOG.info("home moved", machine=machine, before=readable(was), node=readable(now))
    else:
        _LOG.info("home given", machine=machine, node=readable(now))
    edited(recorder, kind, new, f" of{ordinal[1:]}" if ordinal else "", was, now)
    return True
