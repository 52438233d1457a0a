"""Environment variables: Homeport's own, misspelled ones, and those that Kubernetes adds for Services.

If a Service is named ``homeport``, the kubelet sets ``HOMEPORT_SERVICE_HOST``, ``HOMEPORT_PORT=tcp://…`` and more in
all containers of its namespace, unless the pod has ``enableServiceLinks: false``. These variables are recognized by
name and value, and are not read as settings. Kubernetes 1.36 defines their formats in ``pkg/kubelet/envvars``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource

from app.config.mistakes import Mistake, field_names, meant

PREFIX: Final = "HOMEPORT_"
CONFIG: Final = "HOMEPORT_CONFIG"
"""Variable with the path of the configuration file. It has no field in the settings."""

_SERVICE: Final = "HOMEPORT_(?:[A-Z0-9_]+_)?"
_PORT: Final = f"{_SERVICE}PORT_[0-9]+_(?:TCP|UDP|SCTP)"
_URL: Final = re.compile(r"(?:tcp|udp|sctp)://(?:\[[0-9a-f:.]+\]|[0-9.]+):[0-9]{1,5}")
_NUMBER: Final = re.compile("[0-9]{1,5}")
_PROTOCOL: Final = re.compile("tcp|udp|sctp")
_IP: Final = re.compile(r"[0-9.]+|[0-9a-f:.]*:[0-9a-f:.]*")
_SERVICE_LINKS: Final = (
    (re.compile(f"{_SERVICE}SERVICE_HOST"), _IP),
    (re.compile(f"{_SERVICE}SERVICE_PORT(?:_[A-Z0-9_]+)?"), _NUMBER),
    (re.compile(f"{_SERVICE}PORT"), _URL),
    (re.compile(_PORT), _URL),
    (re.compile(f"{_PORT}_PROTO"), _PROTOCOL),
    (re.compile(f"{_PORT}_PORT"), _NUMBER),
    (re.compile(f"{_PORT}_ADDR"), _IP),
)
"""Patterns of the variables that the kubelet sets for a Service: pairs of a name pattern and a value pattern."""


class Variables(Struct, frozen=True):
    """Settings in the environment, by field name. ``values``: their values. ``names``: names of their variables.

    ``links`` are the names of variables that the kubelet set for Services. ``unreadable`` are the fields whose
    variables must be JSON but are not.
    """

    values: Mapping[str, Any]
    names: Mapping[str, str]
    links: tuple[str, ...]
    unreadable: frozenset[str]
    mistakes: tuple[Mistake, ...]


def read_variables(model: type[BaseSettings], environ: Mapping[str, str]) -> Variables:
    """Read all variables whose names begin with ``HOMEPORT_``, in any mix of upper and lower case."""
    source: PydanticBaseSettingsSource = EnvSettingsSource(model)
    written = {name: key for key, name in field_names(model).items()}
    known = {f"{PREFIX}{name.upper()}": name for name in model.model_fields}
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    links: list[str] = []
    mistakes: list[Mistake] = []
    unreadable = set()
    for variable, text in _ours(environ):
        name = known.get(variable.upper())
        if is_service_link(variable, text):
            links.append(variable)
        elif variable.upper() == CONFIG:
            continue
        elif name is None:
            mistakes.append(Mistake((), f"variable {variable}: no such setting{_meant(variable, (*known, CONFIG))}"))
        elif name in names:
            mistakes.append(Mistake(((written[name],),), f"is set twice, also by the variable {variable}"))
        else:
            names[name], values[name] = variable, text
            field = model.model_fields[name]
            if source.field_is_complex(field) and NoDecode not in field.metadata:
                try:
                    values[name] = _json(text)
                except ValueError as error:
                    unreadable.add(name)
                    mistakes.append(Mistake(((written[name],),), f"must be JSON: {error}"))
    return Variables(values, names, tuple(links), frozenset(unreadable), tuple(mistakes))


def is_service_link(variable: str, value: str) -> bool:
    """Return true if name and value are as the kubelet sets them for a Service ``homeport`` or ``homeport-…``."""
    return any(name.fullmatch(variable) and form.fullmatch(value) for name, form in _SERVICE_LINKS)


def _meant(variable: str, known: Iterable[str]) -> str:
    """Return text that suggests a similar variable; empty if there is none. Names are compared without ``PREFIX``."""
    guess = meant(variable[len(PREFIX) :], (it.removeprefix(PREFIX) for it in known))
    return guess.replace("mean ", f"mean {PREFIX}")


def _ours(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return sorted((name, value) for name, value in environ.items() if name.upper().startswith(PREFIX))


def _json(text: str) -> Any:
    """Parse JSON. Raises ``ValueError`` if it is invalid or has duplicate keys, ``NaN`` or ``Infinity``, or if it is
    nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f'"{next(name for name in names if names.count(name) > 1)}" is set twice')
    return mapping


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")
