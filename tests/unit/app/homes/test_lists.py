"""Rules of the lists of homes: each plugin of each profile, and no half of a list."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.homes.lists import HomeLists
from app.homes.protocol import Home, HomeOwner, HomesPlugin, Keeper, State, Whereabouts
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard, PluginError
from app.telemetry.metrics import Metrics
from tests.fakes import Sorts
from tests.unit.app.runtime.engine import POD, framework


class Lists(Sorts, HomesPlugin):
    """Has the homes, and the kinds, it is given."""

    def __init__(self, name: str, *homes: Any, keepers: tuple[Any, ...] = ()) -> None:
        super().__init__(name)
        self._homes = homes
        self._keepers = keepers

    def homes(self) -> Iterator[Any]:
        for it in self._homes:
            if isinstance(it, Exception):
                raise it
            yield it

    def home_of(self, pod: Pod) -> Any:
        return self._homes[0] if self._homes else None

    def keepers(self) -> tuple[Any, ...]:
        return self._keepers


HUT = Home(HomeOwner("example.com/v1", "Hut", "default", "hut", "uid"), "n1", State.USABLE, Whereabouts.IDLE)
KEEPER = Keeper("example.com/v1", "Hut")


def lists(*plugins: Lists) -> HomeLists:
    return HomeLists([framework(*plugins)], Guard(Metrics()))


def home_of(*plugins: Lists) -> Home | None:
    engine = framework(*plugins)
    return HomeLists([engine], Guard(Metrics())).home_of(engine, POD)


class TestHomes:
    """Half a list would look like all of it."""

    def test_they_are_handed_on_step_by_step_plugin_by_plugin(self) -> None:
        found = lists(Lists("A", None, HUT, keepers=(KEEPER,)), Lists("B", HUT, keepers=(KEEPER,)))

        assert [None, HUT, HUT] == list(found.homes())
        assert [("A", KEEPER), ("B", KEEPER)] == found.keepers()

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [
            pytest.param(LookupError("broken"), 'running Homes plugin "A": broken', id="a fault"),
            pytest.param("hut", 'running Homes plugin "A": returned a str, not a Home', id="no home"),
        ],
    )
    def test_what_is_none_ends_it(self, wrong: object, told: str) -> None:
        homes = lists(Lists("A", HUT, wrong, HUT)).homes()

        assert HUT == next(homes)
        with pytest.raises(PluginError, match=re.escape(told)):
            next(homes)

    def test_the_first_that_keeps_a_home_for_a_pod_has_the_word(self) -> None:
        assert HUT == home_of(Lists("A"), Lists("B", HUT), Lists("C", "none"))
        assert home_of(Lists("A")) is None
        with pytest.raises(PluginError, match='running Homes plugin "A": returned a str, not a Home'):
            home_of(Lists("A", "hut"))

    def test_a_kind_that_is_none_is_a_fault(self) -> None:
        told = 'running Homes plugin "A": returned something else than Keepers'
        with pytest.raises(PluginError, match=re.escape(told)):
            lists(Lists("A", keepers=("Hut",))).keepers()
