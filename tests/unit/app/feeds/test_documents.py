"""As much of a list and of an event as has to make sense before an object does."""

from __future__ import annotations

import pytest
from msgspec import Raw

from app.feeds.documents import EVENTS, IDENTIFIED, key_in, read_page
from app.kube.api_errors import ApiUnavailable


async def test_a_page_holds_its_objects_as_they_are() -> None:
    page = await read_page(b'{"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"a": 1}, "odd"]}')

    assert ("7", "more", [b'{"a": 1}', b'"odd"']) == (
        page.metadata.resource_version,
        page.metadata.continue_,
        [bytes(item) for item in page.items or ()],
    )


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"<html>", id="prose of a proxy"),
        pytest.param(b'{"items": []}', id="no metadata"),
        pytest.param(b'{"metadata": {}, "items": []}', id="no version to watch from"),
    ],
)
async def test_what_is_no_list_is_no_answer(raw: bytes) -> None:
    with pytest.raises(ApiUnavailable, match=r"^list: "):
        await read_page(raw)


def test_an_event_and_a_bookmark() -> None:
    event = EVENTS.at_once(b'{"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "8"}}}')
    meta = IDENTIFIED.decode(event.object).metadata

    assert ("BOOKMARK", "8", None) == (event.type, meta.resource_version, meta.name)


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b'{"metadata": {"namespace": "ns", "name": "web", "labels": 5}}', ("ns", "web")),
        (b'{"metadata": {"name": "n1"}}', ("", "n1")),
        (b'{"metadata": {"name": 5}}', ("", "")),
        (b"[]", ("", "")),
    ],
)
def test_the_key_of_what_may_make_no_sense(raw: bytes, key: tuple[str, str]) -> None:
    assert key == key_in(Raw(raw))
