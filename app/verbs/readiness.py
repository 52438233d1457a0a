"""Whether there is a picture good enough to decide on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.verbs.outcome import VerbFailure

Problem = Callable[[], str]
"""Says in a sentence why the picture cannot be used; empty if it can."""


def require_picture(problem: Problem, hosts: Sequence[str] = ()) -> None:
    """Raises ``VerbFailure`` (``not_ready``) where a decision would be a guess."""
    found = problem()
    if found:
        raise VerbFailure("not_ready", f"homeport: {found}", hosts)
