"""What every verb says where something exists that cannot be read: nothing about others changes, and it is named."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from app.config.settings import Settings
from app.feeds.stores import store_for
from app.kube.kinds import NODES, SERVICES, Kind
from app.kube.meta_v1 import ObjectKey
from app.main import HomeportService
from app.verbs.outcome import Verb, VerbFailure
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.service import SAMPLE, example

_BOTH: Final[tuple[Verb, ...]] = ("filter", "prioritize")
UNREADABLE: Final = "node(s) could not be read by Homeport"


class Shop:
    """A whole service around the sample cluster."""

    def __init__(self) -> None:
        self.service = HomeportService(
            Settings(cluster=str(SAMPLE), expected_bind_wait=0), SHIPPED, DEFAULT_WEIGHTS, version="1"
        )

    def mark_unreadable(self, kind: Kind[Any], *key: str) -> None:
        store_for(self.service.snapshot, kind).mark_unreadable((key[0], key[1]), "odd")

    def mark_readable(self, kind: Kind[Any], key: ObjectKey) -> None:
        store_for(self.service.snapshot, kind).mark_readable(key)

    async def ask(self, verb: Verb, asked: Any) -> Any:
        answer = await self.service._callers[""][verb](json.dumps(asked, separators=(",", ":")).encode())
        assert isinstance(answer.body, bytes)
        return json.loads(answer.body)


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_nothing_goes_to_a_node_that_is_left_out(shop: Shop) -> None:
    """Filter refuses it and no other; once it can be read, it is as before."""
    asked = example("filter-spread")
    before = await shop.ask("filter", asked)
    name = before["NodeNames"][0]

    shop.mark_unreadable(NODES, "", name)
    without = await shop.ask("filter", asked)
    shop.mark_readable(NODES, ("", name))

    assert [it for it in before["NodeNames"] if it != name] == without["NodeNames"]
    assert {**before["FailedAndUnresolvableNodes"], name: UNREADABLE} == without["FailedAndUnresolvableNodes"]
    assert before == await shop.ask("filter", asked)


async def test_nothing_is_said_for_it(shop: Shop) -> None:
    asked = example("prioritize-spread")
    name = (await shop.ask("prioritize", asked))[0]["Host"]

    shop.mark_unreadable(NODES, "", name)

    assert {name: 0}.items() <= {it["Host"]: it["Score"] for it in await shop.ask("prioritize", asked)}.items()


async def test_a_remembered_refusal_does_not_outlive_it(shop: Shop) -> None:
    asked = {
        **example("filter-spread"),
        "NodeNames": [(await shop.ask("filter", example("filter-spread")))["NodeNames"][0]],
    }
    shop.mark_unreadable(NODES, "", asked["NodeNames"][0])
    for _ in range(2):
        assert [] == (await shop.ask("filter", asked))["NodeNames"]

    shop.mark_readable(NODES, ("", asked["NodeNames"][0]))

    assert asked["NodeNames"] == (await shop.ask("filter", asked))["NodeNames"]


async def test_a_cycle_does_not_choose_it(shop: Shop) -> None:
    pod = shop.service.snapshot.pod("shop", "web-7d4b9c-new01")
    assert pod is not None
    for name in [name for name in shop.service.snapshot.nodes if name != "node-a1"]:
        shop.mark_unreadable(NODES, "", name)

    found = await shop.service._cycle.run(pod)

    assert {UNREADABLE} == {it.message for name, it in found.statuses.items() if name != "node-a1"}
    assert found.node in ("", "node-a1")


async def test_a_verdict_that_rests_on_a_service_that_is_left_out_names_it(shop: Shop) -> None:
    """Default constraints come from the Services of the namespace; they only score, so filter goes on."""
    asked = example("prioritize-spread")
    del asked["Pod"]["spec"]["topologySpreadConstraints"]
    before = [await shop.ask(verb, asked) for verb in _BOTH]

    shop.mark_unreadable(SERVICES, "elsewhere", "web")
    assert before == [await shop.ask(verb, asked) for verb in _BOTH]

    shop.mark_unreadable(SERVICES, asked["Pod"]["metadata"]["namespace"], "odd")
    with pytest.raises(VerbFailure, match=r"Service [a-z]+/odd cannot be read: odd$"):
        await shop.ask("prioritize", asked)
    assert before[0] == await shop.ask("filter", asked)
    assert [] == [it for metric in shop.service._metrics.plugin_faults.collect() for it in metric.samples if it.value]
