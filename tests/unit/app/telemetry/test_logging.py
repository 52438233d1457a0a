"""Every line has one form, whoever says it. Logging is set up for a whole process, so each case has its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SPEAKERS = {
    "ours": "structlog.get_logger().info('said', pod='a b', traceback='Traceback:\\n  x')",
    "debug": "structlog.get_logger().debug('quiet')",
    "library": "logging.getLogger('uvicorn.error').warning('Invalid %s\\nreceived', 'request')",
    "chatty": "logging.getLogger('httpx').info('HTTP Request: GET'); logging.getLogger('hpack').debug('Bearer x')",
    "warning": "warnings.warn('old', DeprecationWarning, stacklevel=1)",
    "caught": "try: 1/0\nexcept ZeroDivisionError: logging.getLogger('asyncio').exception('never retrieved')",
    "raised": "1/0",
    "thread": "t = threading.Thread(target=lambda: 1/0, name='reader'); t.start(); t.join()",
}
DIVIDED = {"traceback": "ZeroDivisionError: division by zero"}
BEGIN = """
import logging, structlog, sys, threading, warnings
from app.telemetry import throttle
from app.telemetry.logging import configure
warnings.simplefilter('always')
configure({level!r}, {form!r})
"""


def said(speaker: str, level: str = "info", form: str = "json") -> list[str]:
    return said_by(BEGIN.format(level=level, form=form) + SPEAKERS[speaker])


def said_by(program: str) -> list[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    ).stderr.splitlines()


def fields(speaker: str, level: str = "info") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in said(speaker, level)]
    for it in found:
        del it["timestamp"]
        if "traceback" in it:
            it["traceback"] = it["traceback"].splitlines()[-1]
    return found


@pytest.mark.parametrize(
    ("speaker", "level", "line"),
    [
        ("ours", "info", {"event": "said", "level": "info", "pod": "a b", "traceback": "  x"}),
        ("debug", "info", None),
        ("debug", "debug", {"event": "quiet", "level": "debug"}),
        ("library", "info", {"event": "Invalid request\nreceived", "level": "warning", "logger": "uvicorn.error"}),
        ("library", "error", None),
        ("chatty", "debug", None),  # could show credentials
        ("caught", "info", {"event": "never retrieved", "level": "error", "logger": "asyncio", **DIVIDED}),
        ("raised", "info", {"event": "crashed", "level": "critical", "where": "main", **DIVIDED}),
        ("thread", "info", {"event": "crashed", "level": "critical", "where": "reader", **DIVIDED}),
    ],
)
def test_a_line_is_an_object(speaker: str, level: str, line: dict[str, Any] | None) -> None:
    assert ([] if line is None else [line]) == fields(speaker, level)


def test_a_warning_is_one_too() -> None:
    (found,) = fields("warning")

    assert ("warning", "py.warnings", True) == (
        found["level"],
        found["logger"],
        "DeprecationWarning: old" in found["event"],
    )


REPEATED = """
now = [0.0]
throttle.Throttle.__init__.__defaults__ = (60.0, lambda: now[0])
configure('info', 'json')

def fail(at):
    try:
        1/0
    except ZeroDivisionError:
        logging.getLogger('asyncio').exception(f'never retrieved {at}')

for at in (0, 1, 2, 61):
    now[0] = float(at)
    fail(at)
    logging.getLogger('uvicorn.error').warning('also %s', at)
"""


def test_a_library_logs_once_a_minute_from_one_place() -> None:
    """Its next line says how many were held back, whatever their texts."""
    lines = [json.loads(line) for line in said_by(BEGIN.format(level="info", form="json") + REPEATED)]

    assert [("never retrieved 0", None), ("also 0", None), ("never retrieved 61", 2), ("also 61", 2)] == [
        (it["event"], it.get("since_the_last_line")) for it in lines
    ]


def test_for_a_person_a_traceback_stands_below_its_line() -> None:
    first, *below = said("caught", form="console")

    assert (True, "ZeroDivisionError: division by zero") == ("never retrieved" in first, below[-1])
