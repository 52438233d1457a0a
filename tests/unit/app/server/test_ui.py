"""The files of the page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from fastapi import FastAPI

from app.server.ui import FOLDER, POLICY, ui_router

MOST_LINES: Final = {".js": 1200, ".css": 350}
LONGEST_FILE: Final = 250
CONTENTS: Final = {it.name: it.read_bytes() for it in FOLDER.iterdir()}
SCRIPTS: Final = sorted(FOLDER.glob("*.js"))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    web = FastAPI()
    web.include_router(ui_router())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as client:
        yield client


@pytest.mark.parametrize("name", sorted(CONTENTS))
async def test_a_file_is_served_with_the_policy_and_an_etag(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(f"/ui/{name}")
    again = await client.get(f"/ui/{name}", headers={"If-None-Match": answer.headers["etag"]})

    assert (200, CONTENTS[name], POLICY, "nosniff", "no-referrer") == (
        answer.status_code,
        answer.content,
        *(answer.headers[it] for it in ("content-security-policy", "x-content-type-options", "referrer-policy")),
    )
    assert (304, b"") == (again.status_code, again.content)


async def test_the_path_without_a_slash_leads_there_below_any_prefix(client: httpx.AsyncClient) -> None:
    answer = await client.get("/ui")

    assert (307, "ui/") == (answer.status_code, answer.headers["location"])


@pytest.mark.parametrize("name", ["nothing.js", "..%2fui.py", "__init__.py", ".hidden"])
async def test_nothing_else_is_served(client: httpx.AsyncClient, name: str) -> None:
    assert 404 == (await client.get(f"/ui/{name}")).status_code


def test_the_page_stays_small() -> None:
    lines = {it.name: len(it.read_text().splitlines()) for it in FOLDER.iterdir()}

    assert {} == {name: count for name, count in lines.items() if count > LONGEST_FILE}
    for suffix, most in MOST_LINES.items():
        assert sum(count for name, count in lines.items() if name.endswith(suffix)) <= most


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda it: it.name)
def test_a_script_makes_no_markup_and_asks_only_this_homeport(script: Path) -> None:
    text = script.read_text()

    assert [] == re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3)", text)


def test_names_at_the_top_of_scripts_are_unique_because_a_report_joins_them() -> None:
    declared = r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)"
    names = Counter(name for it in SCRIPTS for name in re.findall(declared, it.read_text(), re.MULTILINE))

    assert [] == [name for name, count in names.items() if count > 1]
