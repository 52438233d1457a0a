"""Who may ask what of which listener."""

from __future__ import annotations

from typing import Final

import pytest

from app.server.access import (
    FOREIGN_HOST,
    FOREIGN_SITE,
    NO_CERTIFICATE,
    NOT_A_PEER,
    READS_CLOSED,
    WRONG_NAME,
    ListenerAccess,
    is_local_client,
    is_own_host,
)

NOBODY: Final = frozenset[str]()
OURS: Final = frozenset({"homeport-peer", "homeport"})
SCHEDULER: Final = frozenset({"system:kube-scheduler", "scheduler.example"})


def access(role: str = "verbs", **fields: object) -> ListenerAccess:
    return ListenerAccess(role, **{"loopback": False, **fields}, our_names=lambda: OURS)  # type: ignore[arg-type]


class TestCallers:
    @pytest.mark.parametrize(
        ("asked", "names", "said"),
        [
            pytest.param(access(), None, "", id="insecure: anybody"),
            pytest.param(access(certified=True), None, NO_CERTIFICATE, id="no certificate"),
            pytest.param(access(certified=True), NOBODY, "", id="any certificate of the authority"),
            pytest.param(
                access(certified=True, allowed=SCHEDULER), frozenset({"kubelet"}), WRONG_NAME, id="one of another name"
            ),
            pytest.param(
                access(certified=True, allowed=SCHEDULER), frozenset({"scheduler.example", "x"}), "", id="one that may"
            ),
            pytest.param(access(certified=True, allowed=SCHEDULER), OURS, "", id="another replica"),
            pytest.param(access("peers", certified=True), None, NO_CERTIFICATE, id="peers: nobody without"),
            pytest.param(
                access("peers", certified=True, allowed=SCHEDULER), SCHEDULER, NOT_A_PEER, id="peers: no other"
            ),
            pytest.param(access("peers", certified=True), frozenset({"homeport"}), "", id="peers: a replica"),
        ],
    )
    @pytest.mark.parametrize("path", ["/bind", "/lean/filter", "/api/v1/cycle", "/readyz", "/nothing"])
    def test_the_verbs(self, asked: ListenerAccess, names: frozenset[str] | None, said: str, path: str) -> None:
        assert said == asked.refusal(names, b"POST", path, {})

    @pytest.mark.parametrize(
        ("asked", "names", "reads"),
        [
            pytest.param(access("operator", loopback=True), None, "", id="on loopback"),
            pytest.param(access("operator"), None, READS_CLOSED, id="off loopback"),
            pytest.param(access("operator"), SCHEDULER, READS_CLOSED, id="a certificate is not enough"),
            pytest.param(access("operator", readers=SCHEDULER), SCHEDULER, "", id="a reader"),
            pytest.param(access("operator", readers=frozenset({"prometheus"})), SCHEDULER, READS_CLOSED, id="another"),
            pytest.param(access("operator", open_reads=True), None, "", id="open"),
        ],
    )
    def test_the_operator_s_pages(self, asked: ListenerAccess, names: frozenset[str] | None, reads: str) -> None:
        for path in ("/livez", "/readyz", "/metrics"):
            assert "" == asked.refusal(names, b"GET", path, {})
        for page in ("/api/v1/status", "/api/v1/explain", "/docs", "/readyz?verbose"):
            assert reads == asked.refusal(names, b"GET", page, {})
        for path in ("/readyz/../api/v1/status", "/readyz/", "//readyz", "/%72eadyz", "http://x/readyz"):
            assert reads == asked.refusal(names, b"GET", path, {})


def test_over_loopback_reads_are_open_to_who_names_this_machine() -> None:
    for host, said in ((b"", ""), (b"localhost:8889", ""), (b"[::1]:8889", ""), (b"rebound.example", READS_CLOSED)):
        headers = {b"host": host} if host else {}
        assert said == access("operator").refusal(None, b"GET", "/api/v1/status", headers, local=True)
    assert NO_CERTIFICATE == access(certified=True).refusal(None, b"POST", "/bind", {}, local=True)


@pytest.mark.parametrize(
    ("address", "near"), [("127.0.0.1", True), ("::1", True), ("127.0.0.6", False), ("10.0.0.1", False), ("", False)]
)
def test_a_proxy_in_the_pod_is_not_near(address: str, near: bool) -> None:
    assert near == is_local_client(address)


class TestSites:
    """A web page may make its reader's browser ask anything of what the reader reaches."""

    @pytest.mark.parametrize("role", ["verbs", "operator", "peers"])
    @pytest.mark.parametrize(
        ("method", "headers", "said"),
        [
            pytest.param(b"POST", {b"host": b"10.0.0.1:8888"}, "", id="a scheduler, curl"),
            pytest.param(b"POST", {b"origin": b"http://10.0.0.1:8888"}, "foreign", id="a page of nowhere"),
            pytest.param(b"POST", {b"host": b"h:1", b"origin": b"http://h:1"}, "", id="our own page"),
            pytest.param(b"POST", {b"host": b"h:1", b"origin": b"http://evil"}, "foreign", id="another host"),
            pytest.param(b"POST", {b"host": b"h:1", b"origin": b"http://["}, "foreign", id="no origin at all"),
            pytest.param(b"POST", {b"host": b"h", b"sec-fetch-site": b"same-origin"}, "", id="the same origin"),
            pytest.param(b"GET", {b"host": b"h", b"sec-fetch-site": b"none"}, "", id="typed by hand"),
            *(
                pytest.param(
                    b"GET", {b"host": b"h", b"sec-fetch-site": site}, "foreign", id=f"loaded by a page: {site!r}"
                )
                for site in (b"cross-site", b"same-site", b"", b"None")
            ),
            pytest.param(
                b"POST",
                {b"host": b"h", b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"},
                "foreign",
                id="a form of another site",
            ),
        ],
    )
    def test_which_pages_may_ask(self, role: str, method: bytes, headers: dict[bytes, bytes], said: str) -> None:
        asked = access(role, open_reads=True)

        assert (FOREIGN_SITE if said else "") == asked.refusal(NOBODY, method, "/api/v1/status", headers)

    @pytest.mark.parametrize(
        ("pages", "to", "said"),
        [
            pytest.param(True, b"document", "", id="a link"),
            pytest.param(True, b"iframe", FOREIGN_SITE, id="a frame"),
            pytest.param(False, b"document", FOREIGN_SITE, id="no pages here"),
        ],
    )
    @pytest.mark.parametrize("role", ["operator", "verbs"])
    def test_a_link_into_the_pages_works(self, role: str, pages: bool, to: bytes, said: str) -> None:
        """On one port they are answered where the verbs are."""
        headers = {b"host": b"h", b"sec-fetch-site": b"cross-site", b"sec-fetch-mode": b"navigate"}
        asked = access(role, open_reads=True, pages=pages)

        assert said == asked.refusal(NOBODY, b"GET", "/api/v1/status", {**headers, b"sec-fetch-dest": to})

    @pytest.mark.parametrize(("method", "said"), [(b"GET", ""), (b"HEAD", ""), (b"POST", READS_CLOSED)])
    def test_probes_and_metrics_are_read(self, method: bytes, said: str) -> None:
        assert said == access("operator").refusal(None, method, "/metrics", {b"host": b"h"})

    @pytest.mark.parametrize(
        ("host", "own"),
        [
            (b"127.0.0.1:8888", True),
            (b"127.9.9.9:1", True),
            (b"localhost", True),
            (b"[::1]:8888", True),
            (b"", True),
            (b"evil.example", False),
            (b"127.0.0.1.evil.example", False),
            (b"127.0.0.1:evil", False),
            (b"2130706433", False),
            (b"\xff\xfe", False),
            (b"[::1", False),
            (b"localhost" * 100, False),
        ],
    )
    def test_a_name_that_resolves_to_loopback_is_foreign_there(self, host: bytes, own: bool) -> None:
        asked = access("verbs", loopback=True)

        assert own == is_own_host(host)
        assert ("" if own else FOREIGN_HOST) == asked.refusal(None, b"POST", "/bind", {b"host": host})
        assert "" == access("verbs").refusal(None, b"POST", "/bind", {b"host": host})
