"""What the API server says when it says no."""

from __future__ import annotations

import pytest

from app.kube.api_errors import ApiError


@pytest.mark.parametrize(
    ("raw", "given", "told"),
    [
        pytest.param(
            b'{"code": 409, "reason": "Conflict", "message": "changed"}', {}, "changed (409 Conflict)", id="a Status"
        ),
        pytest.param(b'{"code": 500}', {"status": 504}, "no message (504)", id="what HTTP said goes first"),
        pytest.param(b"<html>" + b"x" * 1000, {"status": 502}, f"<html>{'x' * 494} (502)", id="prose, cut short"),
        pytest.param(b"\xff", {}, "\ufffd (0)", id="neither"),
    ],
)
def test_in_words(raw: bytes, given: dict[str, int], told: str) -> None:
    assert told == str(ApiError.parse(raw, **given))


@pytest.mark.parametrize(
    ("named", "in_header", "seconds"), [(b"3", None, 3.0), (b"3", 7.0, 7.0), (b"0", None, None), (b"null", None, None)]
)
def test_the_time_to_wait(named: bytes, in_header: float | None, seconds: float | None) -> None:
    raw = b'{"code": 429, "details": {"retryAfterSeconds": %s}}' % named

    assert seconds == ApiError.parse(raw, retry_after=in_header).retry_after
