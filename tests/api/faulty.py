"""A plugin that fails at the extension points a test names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from app.config.profile import Profile
from app.framework.handle import Handle
from app.framework.spec import PluginArgs, PluginSpec
from app.framework.status import SUCCESS
from tests.fakes import bases_of

FAULTY: Final = "Faulty"
FAULT: Final = "a screw is loose"
_ACTING: Final = frozenset({"pre_bind", "bind", "post_bind", "run"})
_QUIET: Final[dict[str, Callable[..., Any]]] = {
    "pre_filter": lambda *_: (SUCCESS, None),
    "filter": lambda *_: SUCCESS,
    "score": lambda *_: 0,
}


class FaultyArgs(PluginArgs):
    """Takes no arguments."""


def faulty(*methods: str) -> PluginSpec[FaultyArgs]:
    """A plugin with these methods, each of which raises; it filters and scores quietly unless told otherwise."""
    parts = {**_QUIET, **{name: _fails_later if name in _ACTING else _fails for name in methods}}
    plugin: Any = type(FAULTY, bases_of(parts), {"__init__": _made, **parts})
    return PluginSpec(FAULTY, FaultyArgs, plugin)


def with_faulty(*, binds: bool = False) -> tuple[Profile, ...]:
    """The default profile with the faulty plugin in it; ``binds``: instead of the default binder."""
    plugins: dict[str, Any] = {"multiPoint": {"enabled": [{"name": FAULTY}]}}
    if binds:
        plugins["bind"] = {"disabled": [{"name": "DefaultBinder"}], "enabled": [{"name": FAULTY}]}
    return (Profile.model_validate({"plugins": plugins}),)


def _made(self: object, args: FaultyArgs, handle: Handle) -> None:
    pass


def _fails(self: object, *_: object) -> NoReturn:
    raise RuntimeError(FAULT)


async def _fails_later(self: object, *_: object) -> NoReturn:
    raise RuntimeError(FAULT)
