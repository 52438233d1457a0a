"""The homes of one object, as anybody may have written them on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MOST_SLOTS: Final = 1024
"""Of one object that are looked at, those with the shortest names first, and so the lowest ordinals.

With all that Homeport writes beside a home, the 256 KiB of annotations that the API server takes hold about as many.
"""


def slots(annotations: Mapping[str, str], of: str, *, per_ordinal: bool) -> list[str]:
    """The slots for which the annotation ``of`` is there: only ``""``, where the kind tells no ordinals apart."""
    if not per_ordinal:
        return [""] if of in annotations else []
    prefix = f"{of}."
    found = [key[len(prefix) :] for key in annotations if key == of or key.startswith(prefix)]
    return sorted(found, key=lambda it: (len(it), it))[:MOST_SLOTS]
