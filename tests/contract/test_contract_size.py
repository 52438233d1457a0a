"""How much an author of plugins has to know. To raise a number needs a reason in the message of the same commit."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

from app.framework.handle import Handle
from app.framework.points import Plugin
from app.framework.spec import PluginSpec
from app.homes.protocol import HomesPlugin
from app.runtime.post_filters import Preemption
from app.runtime.slots import BASES
from plugins import sticky_node
from plugins.sticky_node.plugin import StickyNode


def test_the_contract_has_this_size() -> None:
    points = [it for it in BASES if it is not Plugin]
    methods = {(it, name) for it in BASES for name, found in vars(it).items() if callable(found) and name[0] != "_"}
    parameters = signature(PluginSpec.__init__).parameters.keys() - {"self"}

    assert {
        "bases": 14,
        "methods": 28,
        "fields of the Handle": 12,
        "parameters of PluginSpec": 7,
        "bases of StickyNode": 9,
    } == {
        "bases": len(points),
        "methods": len(methods),
        "fields of the Handle": len(Handle.__struct_fields__),
        "parameters of PluginSpec": len(parameters),
        "bases of StickyNode": len(StickyNode.__bases__),
    }


def test_the_plugin_of_homes_has_this_size() -> None:
    modules = Path(sticky_node.__file__).parent.glob("[!_]*.py")

    assert 16 == len([*modules])


def test_no_base_of_one_plugin_alone_is_in_it() -> None:
    assert {HomesPlugin, Preemption}.isdisjoint(BASES)
