"""Pages for people load nothing from other hosts: a script from elsewhere would run on an origin that may bind pods."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.api.service import Api, serving

FOREIGN: Final = re.compile(
    r"""(?:src|href|action)\s*=\s*["']?\s*(?:[a-z]+:)?//|url\((?!["']?data:)|@import|https?://(?!www\.w3\.org/2000/svg)"""
)
"""An address of another host in a page, a style sheet or a script of ours. The name of SVG is not one."""

PARTS: Final = re.compile(r"""(?:src|href)="([^"]+)\"""")


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving() as found:
        yield found


async def pages(api: Api) -> list[str]:
    listed = (await api.get("/"))["pages"]
    return ["/", *listed]


async def test_no_page_names_another_host(api: Api) -> None:
    found = {}
    for path in await pages(api):
        answer = await api.http.get(path, headers={"Accept": "text/html"})
        if answer.headers["content-type"].startswith("text/html"):
            found[path] = (
                FOREIGN.findall(answer.text),
                "default-src 'none'" in answer.headers["content-security-policy"],
            )

    assert dict.fromkeys(("/", "/docs", "/ui/"), ([], True)) == found


async def test_all_that_the_documentation_loads_is_served_here(api: Api) -> None:
    page = await api.http.get("/docs")
    parts = PARTS.findall(page.text)
    answers = {part: await api.http.get(f"/{part}") for part in parts}

    assert {200} == {it.status_code for it in answers.values()}
    assert ["docs/favicon.png", "docs/swagger-ui.css", "docs/swagger-ui-bundle.js", "docs/start.js"] == parts
    assert b"SwaggerUIBundle" in answers["docs/swagger-ui-bundle.js"].content
    assert [[], []] == [FOREIGN.findall(answers[f"docs/{it}"].text) for it in ("swagger-ui.css", "start.js")]


async def test_scripts_and_connections_of_the_documentation_stay_on_its_origin(api: Api) -> None:
    policy = (await api.http.get("/docs")).headers["content-security-policy"]
    rules = dict(it.split(" ", 1) for it in policy.split("; "))

    assert ("'none'", "'self'", "'self'") == tuple(rules[it] for it in ("default-src", "script-src", "connect-src"))
    assert not re.search(r"\*|//", policy)


@pytest.mark.parametrize("name", ["redoc.standalone.js", "__init__.py", "..%2fcore.py", "oauth2-redirect"])
async def test_no_other_file_is_served(api: Api, name: str) -> None:
    assert 404 == (await api.http.get(f"/docs/{name}")).status_code
