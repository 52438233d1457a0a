"""What another process can be told to connect to."""

from __future__ import annotations

import pytest

from app.config.addresses import is_address


@pytest.mark.parametrize(
    "text",
    [
        "a:1",
        "homeport-0.homeport.kube-system.svc:8888",
        "10.1.2.3:65535",
        "[fd00::3]:8888",
        "[fe80::1%eth0]:1",
        "A-1:80",
    ],
)
def test_an_address(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "here", "here:", ":8888", "here:http", "here:0", "here:65536", "here:-1", "here:+1", "here: 1", "here:٣",
        "10.1.2:80", "10.1.2.300:80", "0.0.0.0:80", "[::]:80", "fd00::3:8888", "[fd00::3]", "[here]:80", "http://here:80",
        "here/path:80", "-a:80", "a-:80", "a..b:80", "a_b:80", "user@here:80", "a b:80", f"{'a' * 64}:80",
    ],
)  # fmt: skip
def test_no_address(text: str) -> None:
    assert not is_address(text)
