"""The homes of one object, as anybody may have written them on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MOST_SLOTS: Final = 1024
"""Of one object that are looked at, those with the shortest names first, and so the lowest ordinals.

With all that Homeport writes beside a home, the 256 KiB of annotations that the API server takes hold about as many.
"""

_NUMBERS: Final = re.compile(r"[0-9-]*")


def is_slot(text: str) -> bool:
    """Whether a pod may have it: an ordinal, several numbers (a place in a group), or nothing."""
    return _NUMBERS.fullmatch(text) is not None


def slots(annotations: Mapping[str, str], *of: str, per_ordinal: bool) -> list[str]:
    """The slots for which an annotation ``of`` these is there: only ``""``, where the kind tells no ordinals apart."""
    if not per_ordinal:
        return [""] if any(it in annotations for it in of) else []
    found = {key[len(it) + 1 :] for key in annotations for it in of if key == it or key.startswith(f"{it}.")}
    return sorted(found, key=lambda it: (len(it), it))[:MOST_SLOTS]
