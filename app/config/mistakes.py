"""Mistakes in a configuration: how they are found, and the texts about settings and allowed values.

A ``Place`` is the path of a setting in the file, for example ``("profiles", 0, "pluginConfig", 1, "args", "owners")``.
``app.config.sources`` adds the value of the setting and its source to the text.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic.alias_generators import to_camel

from app.kube.closest import closest
from app.kube.durations import NO_UNIT, BadDuration, duration, parse_duration

Place: TypeAlias = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)
NOTHING: Final = object()
"""Marker that ``value_at`` returns for a missing value, because ``None`` can be a value in the file."""


class Mistake(Struct, frozen=True):
    """Mistake in a configuration. ``places`` are the paths of the settings that it is about, perhaps none.

    ``message`` describes the problem or the allowed values.
    """

    places: tuple[Place, ...]
    message: str


def written(place: Place) -> str:
    """Format a path like Kubernetes, for example ``profiles[0].plugins``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


class Conflict(ValueError):
    """Raised by a validator if the values of fields do not fit together. ``about`` are the names of these fields."""

    def __init__(self, about: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.about = tuple(about)


def field_names(model: type[BaseModel]) -> dict[str, str]:
    """Return a mapping from names in the file to field names, for example ``clientCAFile`` to ``client_ca_file``."""
    return {
        field.alias or re.sub("Ca(?=[A-Z]|$)", "CA", to_camel(name)): name for name, field in model.model_fields.items()
    }


def checked(
    model: type[Model], document: Any, removed: set[Place], validate: Callable[[Any], Model] | None = None
) -> tuple[Model | None, list[Mistake]]:
    """Validate a document; return the model without invalid values, and all mistakes.

    Pydantic does not report all mistakes at once. So invalid values are removed and the rest is validated, until it is
    valid. ``removed`` has the paths that are known to be invalid; paths of removed values are added to it. Mistakes
    caused by a removal are left out. The model is ``None`` if the whole document is invalid.
    """
    mistakes: list[Mistake] = []
    while True:
        try:
            return (validate or model.model_validate)(without(document, removed)), mistakes
        except ValidationError as error:
            invalid = [
                Mistake(tuple(original(place, removed) for place in mistake.places), mistake.message)
                for mistake in mistakes_in(error, model)
            ]
        mistakes += [it for it in invalid if it not in mistakes and not follows(it.places, removed)]
        faulty = {_removable(place, document, removed) for it in invalid for place in it.places} - {()}
        if not faulty:
            return None, mistakes
        removed |= faulty


def without(document: Any, removed: Collection[Place], at: Place = ()) -> Any:
    """Return a copy of a document without the values at the ``removed`` paths. ``at`` is the document's own path."""
    if isinstance(document, dict):
        items = ((key, value, (*at, key)) for key, value in document.items())
        return {key: without(value, removed, place) for key, value, place in items if place not in removed}
    if isinstance(document, list):
        elements = ((value, (*at, number)) for number, value in enumerate(document))
        return [without(value, removed, place) for value, place in elements if place not in removed]
    return document


def original(place: Place, removed: Collection[Place]) -> Place:
    """Convert a path in the output of ``without`` to the path in its input, where list indices can be higher."""
    result: Place = ()
    for part in place:
        if isinstance(part, int):
            remaining = (number for number in count() if (*result, number) not in removed)
            result = (*result, next(islice(remaining, part, None)))
        else:
            result = (*result, part)
    return result


def follows(places: Iterable[Place], removed: Collection[Place]) -> bool:
    """Return true if a mistake about ``places`` can be the consequence of a removal.

    That is so if a place is equal to a removed path, inside it, or a parent of it.
    """
    return any(place[: len(gone)] == gone[: len(place)] for place in places for gone in removed)


def _removable(place: Place, document: Any, removed: Collection[Place]) -> Place:
    """Return ``place`` if the document has it and it is not removed yet; else its innermost such parent."""
    while place and (place in removed or value_at(document, place) is NOTHING):
        place = place[:-1]
    return place


def value_at(document: Any, place: Place) -> Any:
    """Return the value at a path in a document, or ``NOTHING`` if the document does not contain it."""
    for part in place:
        if isinstance(document, dict):
            document = document.get(part, NOTHING)
        elif isinstance(document, list) and isinstance(part, int) and part < len(document):
            document = document[part]
        else:
            return NOTHING
    return document


def mistakes_in(error: ValidationError, model: type[BaseModel], at: Place = ()) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic found in a document. ``at`` is the path of the document in the file."""
    every = error.errors()
    inside = {it["loc"][:depth] for it in every for depth in range(len(it["loc"]))}
    for detail in every:
        if detail["type"] == "too_short" and detail["loc"] in inside:
            continue  # the list is only too short because pydantic does not count its invalid elements
        loc = _written(model, detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Conflict):
            inner = _model_at(model, loc) or model
            names = {name: written for written, name in field_names(inner).items()}
            yield Mistake(tuple((*at, *loc, names.get(name, name)) for name in cause.about), str(cause))
        elif not loc and isinstance(cause, ValueError):
            yield _of_the_whole(str(cause), model, at)
        else:
            yield Mistake(((*at, *loc),), _describe(model, loc, detail, cause))


def _of_the_whole(message: str, model: type[BaseModel], at: Place) -> Mistake:
    """Return a mistake that a validator of the whole model found.

    If the message begins with the name of a setting, for example ``port: must not …``, the mistake is about that
    setting.
    """
    name, colon, rest = message.partition(": ")
    if colon and name in field_names(model):
        return Mistake(((*at, name),), rest)
    return Mistake((at,) if at else (), message)


def _describe(model: type[BaseModel], loc: Place, detail: Mapping[str, Any], cause: object) -> str:
    if detail["type"] == "extra_forbidden":
        inner = _model_at(model, loc[:-1])
        return "no such setting" + meant(str(loc[-1]), field_names(inner) if inner else ())
    if detail["type"] == "missing":
        return "is missing"
    rule = allowed(model, loc)
    if isinstance(cause, BadDuration) and rule:
        return f"{rule}: {cause.cause}" if cause.cause else rule
    if isinstance(cause, ValueError):
        return str(cause)
    return rule or detail["msg"]


def misread(model: type[BaseModel], value: Any, at: Place = ()) -> Iterator[Mistake]:
    """Yield a mistake for each value that pydantic would silently convert: a number to seconds, or ``true`` to 1."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from misread(model, item, (*at, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from misread(model, item, (*at, number))
    elif isinstance(value, int | float):
        kind, metadata = _field_at(model, at) or (None, ())
        if _holds_duration(metadata) or (kind in (int, float) and isinstance(value, bool)):
            unit = f": {NO_UNIT}" if _holds_duration(metadata) and not isinstance(value, bool) else ""
            yield Mistake((at,), _rule(kind, metadata) + unit)


def meant(name: str, known: Iterable[str]) -> str:
    """Return text that suggests the known name most similar to ``name``; empty if none is similar."""
    return "".join(f"; did you mean {it}?" for it in closest(name, known, 1))


def _written(model: type[BaseModel], loc: Sequence[str | int]) -> Place:
    """Convert a location reported by pydantic to the path in the file. Only its first part can be a field name."""
    if loc and isinstance(loc[0], str) and loc[0] in model.model_fields:
        return (next(key for key, name in field_names(model).items() if name == loc[0]), *loc[1:])
    return tuple(loc)


def allowed(model: type[BaseModel], loc: Place) -> str:
    """Return a text about the allowed values of the setting at a path; empty for an unknown setting and some types."""
    field = _field_at(model, loc)
    return "" if field is None else _rule(*field)


def default_at(model: type[BaseModel], loc: Place) -> str | None:
    """Return the default of the setting at a path as text; ``None`` if it has no default, or a composite one."""
    inner = _model_at(model, loc[:-1])
    name = field_names(inner).get(str(loc[-1])) if inner is not None else None
    if inner is None or name is None:
        return None
    default = inner.model_fields[name].default
    if _holds_duration(inner.model_fields[name].metadata):
        return duration(default)
    return json.dumps(default) if isinstance(default, str | int | float) else None


def _rule(kind: Any, metadata: Sequence[Any]) -> str:
    if _holds_duration(metadata):
        return f"must be a duration such as 5s, 500ms or 1m30s{_range(metadata, duration)}"
    if get_origin(kind) is Literal:
        words = [str(it) for it in get_args(kind)]
        return f"must be {words[0]}" if len(words) == 1 else f"must be one of {', '.join(words)}"
    if kind in _KINDS:
        not_empty = ", not empty" if _must_hold(metadata) else ""
        return _KINDS[kind] + not_empty + _range(metadata, "{:g}".format)
    if get_origin(kind) in (tuple, list):
        return "must be a list" + (" of at least one" if _must_hold(metadata) else "")
    return "must be a mapping" if as_model(kind) is not None else ""


_KINDS: Final[Mapping[Any, str]] = {
    bool: "must be true or false",
    int: "must be a whole number",
    float: "must be a number",
    str: "must be a string",
}
_LIMITS: Final = {"ge": "{} or more", "gt": "above {}", "le": "{} at most", "lt": "below {}"}
"""Text about a limit, by the name of pydantic's constraint."""


def _range(metadata: Sequence[Any], shown: Callable[[float], str]) -> str:
    limits = {name: getattr(it, name) for it in metadata for name in _LIMITS if getattr(it, name, None) is not None}
    if {"ge", "le"} <= limits.keys():
        return f", from {_number(limits['ge'], shown)} to {_number(limits['le'], shown)}"
    return "".join(f", {_LIMITS[name].format(_number(limit, shown))}" for name, limit in limits.items())


def _number(value: float, shown: Callable[[float], str]) -> str:
    return str(value) if isinstance(value, int) else shown(value)


def _must_hold(metadata: Sequence[Any]) -> bool:
    return any(getattr(it, "min_length", 0) for it in metadata)


def _holds_duration(metadata: Sequence[Any]) -> bool:
    return any(isinstance(it, BeforeValidator) and it.func is parse_duration for it in metadata)


def _field_at(model: type[BaseModel], loc: Place) -> tuple[Any, Sequence[Any]] | None:
    """Return type and metadata of the setting at a path, without ``None`` in the type; ``None`` if it is unknown."""
    kind: Any = model
    metadata: Sequence[Any] = ()
    for part in loc:
        inner = as_model(kind)
        if inner is None:
            item = _item(kind)
            if item is None:
                return None
            kind, metadata = bare(item)
            continue
        name = field_names(inner).get(str(part), part)
        if name not in inner.model_fields:
            return None
        field = inner.model_fields[name]
        kind, more = bare(field.annotation)
        metadata = (*field.metadata, *more)
    return kind, metadata


def _model_at(model: type[BaseModel], loc: Place) -> type[BaseModel] | None:
    field = _field_at(model, loc)
    return None if field is None else as_model(field[0])


def as_model(kind: Any) -> type[BaseModel] | None:
    """Return ``kind`` if it is a pydantic model, else ``None``."""
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _item(kind: Any) -> Any:
    """Return the element type of a tuple, list or set, or the value type of a mapping; ``None`` for other types."""
    if get_origin(kind) in (tuple, list, frozenset, set):
        return get_args(kind)[0]
    return get_args(kind)[1] if get_origin(kind) in (dict, Mapping) else None


def bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without ``Annotated`` and, in a union with one other type, without ``None``; and its metadata."""
    more: tuple[Any, ...] = ()
    if get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
        more = tuple(metadata)
    if get_origin(kind) in (Union, types.UnionType):
        others = [it for it in get_args(kind) if it is not type(None)]
        if len(others) == 1:
            inner, deeper = bare(others[0])
            return inner, (*more, *deeper)
    return kind, more
