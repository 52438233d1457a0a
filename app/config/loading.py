"""Loads the settings from all sources.

In order of precedence, these are the command line, variables ``HOMEPORT_*``, the configuration file, and the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from app.config.addresses import is_address
from app.config.document import Document, UnreadableFile, read_document
from app.config.mistakes import Mistake, Place, checked, field_names, follows, meant, misread, original
from app.config.settings import Settings
from app.config.sources import SettingSources
from app.config.variables import read_variables

API_VERSION: Final = "homeport.dev/v1alpha1"
KIND: Final = "HomeportConfiguration"
KUBE_SCHEDULER_API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KUBE_SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"


class SettingsError(ValueError):
    """Raised if settings are invalid. The message lists all mistakes, one per line."""


class LoadedSettings(Struct, frozen=True):
    """Settings after validation, their sources and all ``mistakes``.

    ``removed`` are the paths of invalid values, which ``settings`` leaves out.
    """

    settings: Settings
    sources: SettingSources
    mistakes: tuple[Mistake, ...]
    removed: frozenset[Place]

    def is_sound(self, name: str) -> bool:
        """Return true if no mistake is about the field with this name."""
        return all(self.sources.field(place) != name for mistake in self.mistakes for place in mistake.places)

    def further(self, in_profiles: Sequence[Mistake]) -> Iterator[str]:
        """Yield a sentence for each mistake, except those that the removal of a value might have caused.

        ``in_profiles``: mistakes in ``settings.profiles``, with paths in the settings without the removed values.
        """
        for mistake in in_profiles:
            places = tuple(original(place, self.removed) for place in mistake.places)
            # ``pick`` depends on all plugins of its profile. So a mistake about ``pick`` concerns the whole profile,
            # and is not reported if any value of the profile was removed.
            about = [place[:2] if place[-1:] == ("pick",) else place for place in places]
            if not follows(about, self.removed):
                yield self.sources.sentence(Mistake(places, mistake.message))


_WRITTEN: Final = {name: key for key, name in field_names(Settings).items()}
"""Mapping from field names of ``Settings`` to the names of the settings in the file."""


def load_settings(given: Mapping[str, Any], *, config: str | None = None) -> Settings:
    """Load the settings from all sources. ``given`` are the settings from the command line, by field name.

    ``config`` is the path of the configuration file; ``None`` for no file. Raises ``SettingsError`` with all mistakes.
    """
    loaded = read_settings(given, config=config)
    if loaded.mistakes:
        raise SettingsError("\n".join(map(loaded.sources.sentence, loaded.mistakes)))
    return loaded.settings


def read_settings(given: Mapping[str, Any], *, config: str | None = None) -> LoadedSettings:
    """Load the settings like ``load_settings``, but return mistakes instead of raising an error."""
    mistakes: list[Mistake] = []
    document = _document(Path(config), mistakes) if config else None
    in_file = _fields_of(document, mistakes) if document is not None else {}
    variables = read_variables(Settings, os.environ)
    mistakes += variables.mistakes
    sources = SettingSources(Settings, given, variables, in_file, document)
    misread = list(_misread(sources))
    mistakes += misread
    removed = {place for mistake in misread for place in mistake.places}
    removed |= {(_WRITTEN[name],) for name in variables.unreadable if isinstance(given.get(name, {}), Mapping)}
    settings, invalid = checked(
        Settings, {_WRITTEN[name]: value for name, value in sources.values.items()}, removed, _settings_of
    )
    mistakes += invalid
    settings = settings or Settings()
    return LoadedSettings(settings, sources, (*mistakes, *_together(settings, sources)), frozenset(removed))


def _settings_of(written: Mapping[str, Any]) -> Settings:
    """Create the settings from values by their names in the file. Raises ``ValidationError`` if one is invalid."""
    names = field_names(Settings)
    return Settings.model_validate({names[key]: value for key, value in written.items()})


def _document(path: Path, mistakes: list[Mistake]) -> Document | None:
    try:
        document = read_document(path)
    except UnreadableFile as error:
        mistakes.append(Mistake((), str(error)))
        return None
    mistakes += document.mistakes
    return document


def _fields_of(document: Document, mistakes: list[Mistake]) -> dict[str, Any]:
    """Return the file's settings by field name. Append mistakes about its kind and unknown settings to ``mistakes``.

    A ``null`` is treated like a missing setting, as Go does. From a KubeSchedulerConfiguration only the profiles are
    read, because all other fields are for the scheduler.
    """
    content = document.value if isinstance(document.value, dict) else {}
    named = (content.get("apiVersion"), content.get("kind"))
    if named == (KUBE_SCHEDULER_API_VERSION, KUBE_SCHEDULER_KIND):
        return {"profiles": content["profiles"]} if content.get("profiles") else {}
    if named != (API_VERSION, KIND):
        wanted = f"apiVersion: {API_VERSION} and kind: {KIND}, or a {KUBE_SCHEDULER_KIND}"
        shown = f"{named[0]}, {named[1]}" if content else "no mapping"
        mistakes.append(Mistake((), f"{document.path}: expected {wanted}; found {shown}"))
        return {}
    names = field_names(Settings)
    unknown = [key for key in content if key not in names and key not in ("apiVersion", "kind")]
    mistakes += [Mistake(((key,),), f"no such setting{meant(key, names)}") for key in unknown]
    return {name: content[key] for key, name in names.items() if content.get(key) is not None}


def _misread(sources: SettingSources) -> Iterator[Mistake]:
    """Yield the mistakes that ``misread`` finds in the file and the variables."""
    for key, name in field_names(Settings).items():
        yield from misread(Settings, sources.from_elsewhere(name), (key,))


def _together(settings: Settings, sources: SettingSources) -> Iterator[Mistake]:
    given = sources.values
    if given.get("cluster") is not None and given.get("kubeconfig") is not None:
        message = "a saved cluster is served without an API server: give one of them"
        yield Mistake((("cluster",), ("kubeconfig",)), message)
    if settings.advertise_address is not None and not is_address(settings.advertise_address):
        yield Mistake(
            (("advertiseAddress",),),
            "must be host:port at which others reach this replica: a name, an IPv4 address or an IPv6 address in "
            "brackets, and a port from 1 to 65535",
        )
