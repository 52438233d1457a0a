"""Rules of assumed pods: in flight, reserved, accepted, unclear, gone."""

import pytest

from app.cache.assumed import AssumedPods
from tests.builders import make_pod

POD = make_pod("a", node="n1")
NEWER = make_pod("a", node="n1", labels={"v": "2"})
SETTLED = "settled"


@pytest.mark.parametrize(
    ("steps", "in_flight", "reserved", "unconfirmed", "told"),
    [
        pytest.param("put", 1, 0, 0, [], id="in flight"),
        pytest.param("put accept", 0, 0, 1, [SETTLED], id="accepted: certain, and not confirmed yet"),
        pytest.param("put reserve", 0, 1, 0, [SETTLED], id="reserved: nobody waits for it"),
        pytest.param("put reserve proceed", 1, 0, 0, [SETTLED], id="it goes on in flight"),
        pytest.param("put reserve proceed accept", 0, 0, 1, [SETTLED, SETTLED], id="and is accepted"),
        pytest.param("put doubt", 1, 0, 1, [], id="unclear: whoever waits for it goes on waiting"),
        pytest.param("put accept doubt", 1, 0, 1, [SETTLED], id="accepted, then unclear"),
        pytest.param("put reserve doubt", 0, 1, 0, [SETTLED], id="a reserved one cannot be unclear"),
        pytest.param("put accept reserve proceed", 0, 0, 1, [SETTLED], id="only one in flight can be reserved"),
        pytest.param("put remove", 0, 0, 0, [SETTLED], id="removed in flight"),
        pytest.param("put accept remove", 0, 0, 0, [SETTLED], id="removed once accepted"),
        pytest.param("put doubt remove", 0, 0, 0, [SETTLED], id="removed once unclear"),
        pytest.param("put reserve remove", 0, 0, 0, [SETTLED, POD.uid], id="a reserved one that is gone is named"),
        pytest.param("accept reserve proceed doubt remove", 0, 0, 0, [], id="a pod that nobody assumed"),
    ],
)
def test_where_a_pod_is_after(steps: str, in_flight: int, reserved: int, unconfirmed: int, told: list[str]) -> None:
    """And a newer form of it stays where the pod is."""
    assumed, heard = AssumedPods(), list[str]()
    assumed.on_settled(lambda _: heard.append(SETTLED))
    assumed.on_lost(heard.append)
    for step in steps.split():
        assumed.put(POD) if step == "put" else getattr(assumed, step)(POD.uid)
    there = bool(in_flight or reserved or unconfirmed)

    for form in (POD, NEWER) if there else (POD,):
        assert ((form,) * in_flight, (form,) * reserved, (form,) * unconfirmed) == (
            assumed.in_flight(),
            assumed.reserved(),
            assumed.unconfirmed(),
        )
        assert (there, form if there else None) == (len(assumed) == 1, assumed.get(POD.uid))
        if there:
            assumed.put(NEWER)
    assert told == heard
    assert assumed.is_unclear(POD.uid) == bool(in_flight and unconfirmed)
    assert assumed.doubt(POD.uid) == bool(in_flight or unconfirmed)
