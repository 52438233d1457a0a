"""Requests that nobody should send, and some that one may: the same for a seed, each by its number alone.

A family is a way to go wrong. What it makes is a ``Case``: bytes for one connection in pieces, and what is due for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Literal, cast

from msgspec import Struct

from app.verbs.outcome import Verb
from tests.api import test_generated_input as generated
from tests.api.mutations import mutated
from tests.api.recorded import CALLS
from tests.builders import JsonObject, constraint, encoded, pod_object
from tests.fuzz.world import WAITING, WAITS_IN, waiting_pod

Side = Literal["verbs", "operator"]
Due = Literal["answer", "answer or end", "end", "nothing"]
"""``answer``: one for each ask, in order · ``answer or end``: the same, or the connection is closed instead · ``end``:
the connection is closed, with whatever answer · ``nothing``: it may be answered, closed or waited with; we hang up."""

VERBS: Final[tuple[Verb, ...]] = ("filter", "prioritize", "preempt", "bind")
PREFIXES: Final = ("", "/lean")
PAGES: Final = (
    "/",
    "/livez",
    "/readyz",
    "/readyz?verbose",
    "/metrics",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/favicon.ico",
    "/api/v1/status",
    "/api/v1/check",
    "/api/v1/homes",
    "/api/v1/homes?limit=1&continue=e30=&orphaned=true",
    "/api/v1/waiting",
    "/api/v1/pending",
    "/api/v1/explain/shop/web-7d4b9c-new01?node=node-a1",
    "/api/v1/explain/shop?kind=Deployment&name=web",
    "/api/v1/cycle",
    "/api/v1/explain",
    "/api/v1/drain",
    "/api/v1/rebalance",
)
OF_VERBS: Final = ("/api/v1/cycle",)
"""Pages that only the listener for the verbs has."""

METHODS: Final = (
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "get", "FOO", "G\u00cbT",
)  # fmt: skip


class Ask(Struct, frozen=True):
    """One request of a case, as far as its answer has to do with it. ``verb``: whose contract holds, if any's does."""

    method: str
    path: str
    body: bytes
    verb: Verb | None = None


class Case(Struct, frozen=True):
    """``pieces`` are sent with ``waits`` seconds after each. ``refusable``: it may be refused before a verb sees it."""

    number: int
    family: str
    to: Side
    pieces: tuple[bytes, ...]
    asks: tuple[Ask, ...]
    due: Due = "answer"
    waits: tuple[float, ...] = ()
    refusable: bool = False


class _Made(Struct):
    """What a family makes."""

    pieces: list[bytes]
    asks: list[Ask]
    due: Due = "answer"
    waits: list[float] = []
    to: Side = "verbs"
    refusable: bool = False


Family = Callable[[Random, int], _Made]


def head(ask: Ask, *headers: str, length: int | None = None) -> bytes:
    """The bytes before the body, with its length unless ``headers`` speak of it; a ``length`` below 0 leaves it out."""
    size = len(ask.body) if length is None else length
    lines = [f"{ask.method} {ask.path} HTTP/1.1", "Host: localhost", *headers]
    if size >= 0:
        lines.append(f"Content-Length: {size}")
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"


def whole(ask: Ask, *headers: str) -> bytes:
    return head(ask, *headers) + ask.body


# bodies


def _objects_of(verb: Verb, number: int) -> list[JsonObject]:
    """Good requests of a verb: of the sample cluster, and about a waiting pod of the world."""
    pod, nodes = waiting_pod(number % WAITING), [f"more-{number * 7 % 60}", f"more-{number * 11 % 60}", "node-a1"]
    if verb == "bind":
        metadata = pod["metadata"]
        named = {"PodName": metadata["name"], "PodNamespace": WAITS_IN, "PodUID": metadata["uid"]}
        own: JsonObject = {**named, "Node": nodes[0]}
    elif verb == "preempt":
        own = {"Pod": pod, "NodeNameToMetaVictims": {name: {"Pods": [{"UID": "u"}]} for name in nodes}}
    else:
        own = {"Pod": pod, "Nodes": None, "NodeNames": list(dict.fromkeys(nodes))}
    return [*generated.GOOD[f"/{verb}"], own, own]


_RECORDED: Final[Mapping[Verb, list[bytes]]] = {
    verb: [call.request for call in CALLS if call.verb == verb] for verb in VERBS
}


def _good(random: Random, number: int, verb: Verb) -> bytes:
    recorded = _RECORDED[verb]
    if recorded and random.random() < 0.3:
        return random.choice(recorded)
    return encoded(random.choice(_objects_of(verb, number)))


def _called(random: Random, number: int, change: Callable[[Random, bytes], bytes] = lambda _, body: body) -> Ask:
    """A call of any verb below any prefix, its body as ``change`` makes it."""
    verb = random.choice(VERBS)
    body = change(random, _good(random, number, verb))
    return Ask("POST", f"{random.choice(PREFIXES)}/{verb}", body, verb)


def _page(random: Random) -> Ask:
    return Ask("GET", random.choice(PAGES[:-3]), b"")


def _spoiled(random: Random, body: bytes) -> bytes:
    return mutated(random, body, deep=False)


def _by(kind: Callable[[Random, JsonObject], bytes]) -> Family:
    """A kind of ``test_generated_input``, sent as a whole to any endpoint that takes a body."""

    def make(random: Random, number: int) -> _Made:
        path = random.choice(tuple(generated.GOOD))
        verb = generated.VERBS.get(path)
        good = random.choice(_objects_of(verb, number) if verb else generated.GOOD[path])
        prefix = random.choice(PREFIXES) if verb else ""
        ask = Ask("POST", prefix + path, kind(random, good), verb)
        return _Made([whole(ask)], [ask], to="verbs" if verb or path in OF_VERBS else "operator")

    return make


# ways to send


def mutated_(random: Random, number: int) -> _Made:
    asks = [_called(random, number, _spoiled) for _ in range(random.choice((1, 1, 1, 3)))]
    return _Made([whole(ask) for ask in asks], asks)


def _cut(random: Random, sent: bytes, most: int = 6) -> list[bytes]:
    places = sorted(random.randrange(1, len(sent)) for _ in range(random.randint(1, most)))
    return [sent[start:end] for start, end in zip([0, *places], [*places, len(sent)], strict=True) if end > start]


def split(random: Random, number: int) -> _Made:
    """Anywhere, also within the head; now and then the rest comes later than the short way waits."""
    ask = _called(random, number, random.choice((_spoiled, lambda _, body: body)))
    pieces = _cut(random, whole(ask))
    waits = [random.choice((0.0, 0.0, 0.001, 0.005, 0.03)) for _ in pieces]
    return _Made(pieces, [ask], waits=waits)


def pipelined(random: Random, number: int) -> _Made:
    """Several without waiting, pages among them, in packets that have nothing to do with where they begin and end."""
    asks = [
        _called(random, number + place, random.choice((_spoiled, lambda _, body: body)))
        if random.random() < 0.75
        else _page(random)
        for place in range(random.randint(2, 8))
    ]
    sent = b"".join(map(whole, asks))
    pieces = _cut(random, sent, 10) if random.random() < 0.6 else [sent]
    return _Made(pieces, asks, waits=[random.choice((0.0, 0.0, 0.002)) for _ in pieces])


def _chunks(random: Random, body: bytes) -> bytes:
    found = []
    while body:
        size = random.choice((1, 7, 64, 1000, 10_000, 100_000))
        piece, body = body[:size], body[size:]
        form = random.choice((b"%x", b"%X", b"0%x", b"%x;ext=1"))
        found.append(form % len(piece) + b"\r\n" + piece + b"\r\n")
    return b"".join(found)


def chunked(random: Random, number: int) -> _Made:
    ask = _called(random, number, _spoiled)
    sent = head(ask, "Transfer-Encoding: chunked", length=-1) + _chunks(random, ask.body)
    last = random.choice((b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n", b"000\r\n\r\n"))
    pieces = _cut(random, sent + last) if random.random() < 0.4 else [sent + last]
    return _Made(pieces, [ask])


def broken_chunks(random: Random, number: int) -> _Made:
    ask = _called(random, number)
    sent = head(ask, "Transfer-Encoding: chunked", length=-1)
    wrong = random.choice(
        (
            b"x\r\nabc\r\n",
            b"-1\r\nabc\r\n",
            b"ffffffffffffffffff\r\nabc\r\n",
            b"3\nabc\n",
            b"3\r\nabcd\r\n",
            b"\r\n\r\n",
        )
    )
    return _Made([sent + wrong + b"0\r\n\r\n"], [ask], due="nothing", refusable=True)


def lengths(random: Random, number: int) -> _Made:
    """Wrong ones: what is left over is taken for a request, what is missing is waited for."""
    ask = _called(random, number)
    told = random.choice(
        ("-1", "", "x", "1e3", "0x10", "+5", " 5 5", "99999999999999999999", "18446744073709551616", "\u00b2")
    )
    size = len(ask.body)
    sent: tuple[bytes, ...] = random.choice(
        (
            (head(ask, f"Content-Length: {told}", length=-1), ask.body),
            (head(ask, length=size + random.choice((1, 10, 10_000))), ask.body),
            (head(ask, length=random.randrange(size)), ask.body),
            (head(ask, f"Content-Length: {size + 1}"), ask.body),
            (head(ask, f"Content-Length: {size}"), ask.body),
            (head(ask, "Transfer-Encoding: chunked"), ask.body),
            (head(ask, "Transfer-Encoding: chunked, gzip", length=-1), ask.body),
            (head(ask, "Transfer-Encoding: identity"), ask.body),
            (head(ask, length=-1), ask.body),
        )
    )
    return _Made([b"".join(sent)], [ask], due="nothing", refusable=True)


_HEADS: Final = (
    b"POST /filter\r\n\r\n",
    b"POST  /filter HTTP/1.1\r\n\r\n",
    b"POST /filter HTTP/9.9\r\nContent-Length: 0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nContent-Length : 0\r\n\r\n",
    b"POST /filter HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
    b"POST /filter HTTP/1.1\r\n Folded: x\r\nContent-Length: 0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    b"POST /fil\x00ter HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nX-\x00: \x00\r\nContent-Length: 0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\n: nameless\r\nContent-Length: 0\r\n\r\n",
    b"POST /filter HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
    b"POST http://elsewhere/filter HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    b"POST * HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    b"CONNECT homeport:443 HTTP/1.1\r\nHost: homeport:443\r\n\r\n",
    b"GET /livez\r\n",
    b"\r\n\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03" + b"\xa5" * 200,
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x00" * 64,
    b"\xff\xfe" * 32,
)


def heads(random: Random, _: int) -> _Made:
    """No HTTP, or hardly."""
    sent = bytearray(random.choice(_HEADS))
    for _ in range(random.choice((0, 0, 1, 3))):
        sent[random.randrange(len(sent))] = random.randrange(256)
    return _Made([bytes(sent)], [], due="nothing", to=random.choice(("verbs", "operator")), refusable=True)


_HEADERS: Final = (
    "Expect: 100-continue",
    "Expect: 200-ok",
    "Connection: close",
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
    "Connection: Upgrade\r\nUpgrade: h2c",
    "Content-Type: text/plain",
    "Content-Type: multipart/form-data; boundary=x",
    "Content-Type: \u00ff",
    "Content-Encoding: gzip",
    "Accept: application/vnd.kubernetes.protobuf",
    "Accept-Encoding: br;q=x",
    "Origin: https://elsewhere.example",
    "Sec-Fetch-Site: cross-site",
    "Host: elsewhere.example",
    "X-Forwarded-For: 10.0.0.1",
    "Homeport-Forwarded: x",
    "Authorization: Bearer \u00e9",
    "Cookie: a=b; c",
    "Range: bytes=0-1",
    "If-None-Match: *",
    "X-Empty:",
    "X-Many: " + ", ".join(map(str, range(500))),
)


def headers(random: Random, number: int) -> _Made:
    """Headers that mean something to somebody, on good calls and pages."""
    ask = _called(random, number) if random.random() < 0.7 else _page(random)
    chosen = random.sample(_HEADERS, random.randint(1, 3))
    to: Side = "verbs" if ask.verb else "operator"
    return _Made([whole(ask, *chosen)], [ask], to=to, due="answer or end", refusable=True)


_PATHS: Final = (
    "//filter",
    "/filter/",
    "/FILTER",
    "/./filter",
    "/../filter",
    "/%66ilter",
    "/filter%00",
    "/filter%2f",
    "/filter;x",
    "/filter?",
    "/filter?a=b&a=c&%ff",
    "/filter#x",
    "/lean",
    "/lean/",
    "/lean/lean/filter",
    "/lean//filter",
    "/api",
    "/api/v1/",
    "/api/v1/waiting/x/allow",
    "/api/v1/waiting/%00/reject",
    "/api/v1/waiting//allow",
    "/api/v1/waiting/" + "u" * 3000 + "/allow",
    "/docs/oauth2-redirect",
    "/%e2%80%ae",
    "/\u00ff\u00fe",
    "/" + "a/" * 1000,
    "/static/../../../../etc/passwd",
    "/..%2f..%2fetc/passwd",
)


def paths(random: Random, number: int) -> _Made:
    """Any method on any path, of any listener."""
    path = random.choice((*_PATHS, *PAGES, *(f"{prefix}/{verb}" for prefix in PREFIXES for verb in VERBS)))
    method = random.choice(METHODS)
    body = random.choice((b"", b"{}", b"null", _good(random, number, random.choice(VERBS))))
    ask = Ask(method, path, body)
    verb = next((it for it in VERBS if method == "POST" and path in (f"/{it}", f"/lean/{it}")), None)
    ask = Ask(method, path, body, verb)
    return _Made([whole(ask)], [ask], to=random.choice(("verbs", "operator")), due="answer or end", refusable=True)


def settling(random: Random, _: int) -> _Made:
    """Bodies for waiting pods, of whom there are none."""
    action = random.choice(("allow", "reject"))
    body = random.choice(
        (b"{}", b'{"plugin":"A"}', b'{"plugin":"A","message":"no"}', b'{"plugin":null}', b"[", b"\xff")
    )
    ask = Ask("POST", f"/api/v1/waiting/{random.choice(('x', 'uid-1', '%00', '..'))}/{action}", body)
    return _Made([whole(ask)], [ask], to="verbs", refusable=True)


_NAMES: Final = (
    *("shop", "machines", WAITS_IN, "web-7d4b9c-new01", "web-7d4b9c-k0x8m", "virt-launcher-db01-x7k2p", "waiting-1"),
    *("node-a1", "node-b2", "more-7", "web", "db01", "Deployment", "VirtualMachine", "ReplicaSet", "", "x", "..", "*"),
    *("%00", "%2e%2e", "%2F", "%ff", "%e2%80%ae", "%F0%9F%98%80", "A" * 300, "n" * 5000, "kube-system", "null", "-1"),
)
_SELECTORS: Final = (
    *("app=web", "app%3Dweb", "app", "!app", "app+in+(web,api)", "app+notin+(web)", "a==b==c", "a+in+(", "(", ",", "!"),
    *("%00", "app%3D%ff", "=", "app!=web,tier", ",".join(["app"] * 500), "a" * 8000, "app=" + "v" * 300, "app+in+()"),
)
_NUMBERS: Final = ("0", "1", "199", "500", "-1", "1e3", "1000000", "1000001", "9" * 40, "x", "", "0x1", "%00", "1.5")


def explanations(random: Random, number: int) -> _Made:
    """Pods, nodes, workloads and selectors, of which most do not exist; and bodies with a node or a profile."""
    names = [random.choice(_NAMES) for _ in range(3)]
    match random.randrange(5):
        case 0:
            query = random.choice(("", f"?node={names[2]}", f"?node={names[2]}&node=node-a1", "?node", "?more=1"))
            path, body = f"/api/v1/explain/{names[0]}/{names[1]}{query}", b""
        case 1:
            query = random.choice((f"kind={names[1]}&name={names[2]}", f"kind={names[1]}", f"name={names[2]}", ""))
            path, body = f"/api/v1/explain/{names[0]}?{query}", b""
        case 2:
            path, body = f"/api/v1/explain/{names[0]}?labelSelector={random.choice(_SELECTORS)}", b""
        case 3:
            query = f"namespace={names[0]}" if random.random() < 0.5 else ""
            path, body = f"/api/v1/pending?{query}&start={random.choice(_NUMBERS)}", b""
        case _:
            found = dict(random.choice(generated.GOOD["/api/v1/explain"]))
            found |= {
                random.choice(("node", "schedulerName", "namespace", "nodes")): random.choice((*_NAMES, None, 7, []))
            }
            path, body = "/api/v1/explain", generated.encoded_any(found)
            if random.random() < 0.5:
                body = _spoiled(random, body)
    ask = Ask("POST" if body else "GET", path, body)
    return _Made([whole(ask)], [ask], to="operator", refusable=True)


def hang_up(random: Random, number: int) -> _Made:
    """Gone in the middle, or as soon as all is sent."""
    ask = _called(random, number)
    sent = whole(ask)
    end = random.choice((random.randrange(1, len(sent)), len(sent)))
    return _Made([sent[:end]], [], due="nothing", waits=[random.choice((0.0, 0.001, 0.03))])


def held(random: Random, number: int) -> _Made:
    """Half a request, and silence: nobody may hold a connection like that."""
    ask = _called(random, number)
    page = Ask("POST", "/api/v1/cycle", generated.encoded_any(generated.GOOD["/api/v1/cycle"][0]))
    sent, to = random.choice(((whole(ask), "verbs"), (whole(page), "operator")))
    middle = sent.index(b"\r\n\r\n") + 4
    end = random.choice((0, 7, 30, middle - 2, middle, middle + 5))
    return _Made([sent[:end]], [], due="end", to=cast("Side", to))


def vast_heads(random: Random, number: int) -> _Made:
    """Tens of megabytes before the body."""
    ask = _called(random, number)
    filling = random.choice(("X-Long: " + "h" * 20_000_000, "\r\n".join(f"X-{it}: {it}" for it in range(1_000_000))))
    return _Made([whole(ask, filling)], [ask], due="answer or end", refusable=True)


def long_heads(random: Random, number: int) -> _Made:
    """Beyond 64 KiB: a path, a header, or many of them."""
    ask = _called(random, number)
    size = random.choice((65_536, 70_000, 300_000, 2_000_000))
    match random.randrange(3):
        case 0:
            ask = Ask("POST", "/filter?" + "q" * size, ask.body)
            sent = whole(ask)
        case 1:
            sent = whole(ask, "X-Long: " + "h" * size)
        case _:
            sent = whole(ask, *(f"X-{place}: {place}" for place in range(size // 16)))
    return _Made([sent], [Ask("POST", ask.path, ask.body)], due="answer or end", refusable=True)


def long_bodies(random: Random, number: int) -> _Made:
    """Megabytes, and what is said to be many more."""
    ask = _called(random, number)
    filled = b'{"more":"' + b"x" * random.choice((70_000, 1_100_000, 5_000_000)) + b'",' + ask.body[1:]
    if random.random() < 0.3:
        sent = head(ask, length=random.choice((1 << 28, 1 << 40))) + ask.body
        return _Made([sent], [ask], due="nothing", refusable=True)
    long = Ask(ask.method, ask.path, filled, ask.verb)
    return _Made([whole(long)], [long], due="answer or end", refusable=True)


def constraints(random: Random, number: int) -> _Made:
    """A pod with very many spread constraints, as the API server takes it: up to 1.5 MB."""
    count = random.choice((200, 1500, 4500))
    spread = [constraint(f"example.com/{place}", app=f"app-{place % 8}", soft=place % 2 == 0) for place in range(count)]
    pod = pod_object(f"wide-{number}", namespace=WAITS_IN, labels={"app": "app-1"}, spread=spread)
    verb: Verb = random.choice(("filter", "prioritize"))
    ask = Ask("POST", f"/{verb}", encoded({"Pod": pod, "Nodes": None, "NodeNames": ["more-1", "more-2"]}), verb)
    return _Made([whole(ask)], [ask])


def keyed(random: Random, number: int) -> _Made:
    """The same domain key and selectors by the thousand: what is asked again and again must not be dear either."""
    count = random.choice((200, 1500))
    spread = [
        constraint(skew=place + 1, selector={"matchExpressions": [{"key": f"k{place}", "operator": "Exists"}]})
        for place in range(count)
    ]
    pod = pod_object(f"keyed-{number}", namespace=WAITS_IN, labels={"app": "app-1"}, spread=spread)
    ask = Ask("POST", "/filter", encoded({"Pod": pod, "Nodes": None, "NodeNames": ["more-1", "more-2"]}), "filter")
    return _Made([whole(ask)], [ask])


_STATES: Final = ("first bytes", "head", "head's end", "begun", "middle", "last byte", "chunk's size", "chunk's end")
"""Parts of a request in which its body is cut off."""


def _cut_at(random: Random, state: str, head_size: int, size: int) -> int:
    """Return the number of bytes to send. The body begins with a chunk of 7 bytes where it is sent in chunks."""
    places = {
        "first bytes": random.randrange(1, 20),
        "head": random.randrange(20, head_size),
        "head's end": head_size - random.randrange(3),
        "begun": head_size + 1,
        "middle": random.randrange(head_size, size),
        "last byte": size - 1,
        "chunk's size": head_size + random.randrange(1, 4),
        "chunk's end": head_size + random.randrange(3, 13),
    }
    return min(places[state], size - 1)


def cut_bodies(random: Random, number: int) -> _Made:
    """A body that ends in any state of its request, short, long or in chunks, also behind a request with the same head.

    The client hangs up at once, within the grace that a body gets, or after it.
    """
    others = ("/api/v1/drain", "/api/v1/waiting/x/allow", "/api/v1/waiting/x/reject")
    path = random.choice((*generated.GOOD, *others))
    verb = generated.VERBS.get(path)
    good = random.choice(_objects_of(verb, number) if verb else generated.GOOD.get(path, [{"nodes": ["node-a1"]}]))
    body = encoded(good)
    if random.random() < 0.2:
        body = body[:-1] + b" " * random.choice((30_000, 70_000, 300_000, 1_100_000)) + body[-1:]
    ask = Ask("POST", (random.choice(PREFIXES) if verb else "") + path, body, verb)
    before = whole(Ask(ask.method, ask.path, encoded(good), verb)) if random.random() < 0.4 else b""
    if random.random() < 0.3:
        first = head(ask, "Transfer-Encoding: chunked", length=-1)
        sent = first + b"7\r\n" + body[:7] + b"\r\n%x\r\n" % len(body[7:]) + body[7:] + b"\r\n0\r\n\r\n"
    else:
        first, sent = head(ask), whole(ask)
    end = _cut_at(random, random.choice(_STATES), len(first), len(sent))
    pieces = [it for it in (before, *_cut(random, sent[:end], 2)) if it] if end > 1 else [before + sent[:end]]
    waits = [random.choice((0.0, 0.0, 0.001, 0.005)) for _ in pieces[1:]]
    to: Side = "verbs" if verb or path != "/api/v1/explain" else "operator"
    return _Made(pieces, [], due="nothing", waits=[*waits, random.choice((0.0, 0.0, 0.001, 0.005, 0.03))], to=to)


def largest_cycles(random: Random, number: int) -> _Made:
    """Cycles and explanations of up to 4 MiB, within the bounds or beyond: of names, containers, labels or pods."""
    count = random.choice((1_000, 5_000, 20_000, 60_000, 250_000))
    pod = pod_object(f"vast-{number}", namespace=WAITS_IN, labels={"app": "app-1"})
    match random.randrange(5):
        case 0:
            asked: JsonObject = {"pod": pod, "nodes": [f"n{place}" for place in range(count)]}
        case 1:
            pod["spec"]["containers"] = [{"name": "a"}] * min(count, 200_000)
            asked = {"pod": pod}
        case 2:
            pod["metadata"]["labels"] = {f"k{place}": "v" for place in range(count)}
            asked = {"pod": pod}
        case 3:
            asked = {"pods": [{"pod": pod, "queuedAt": place} for place in range(min(count // 20, 5_000))]}
        case _:
            asked = {"pod": pod, "nodes": [number] * count}
    path = random.choice(("/api/v1/cycle", "/api/v1/cycle", "/api/v1/explain"))
    ask = Ask("POST", path, encoded(asked))
    to: Side = "verbs" if path == "/api/v1/cycle" else "operator"
    return _Made([whole(ask)], [ask], to=to, due="answer or end", refusable=True)


FAMILIES: Final[Mapping[str, tuple[float, Family]]] = {
    "mutated": (30, mutated_),
    "split": (12, split),
    "pipelined": (10, pipelined),
    "chunked": (8, chunked),
    "broken-chunks": (2, broken_chunks),
    "made-up": (8, _by(generated.made_up)),
    "half-made-up": (6, _by(generated.half_made_up)),
    "oddly-cased": (6, _by(generated.oddly_cased)),
    "repeated": (5, _by(generated.repeated)),
    "nested": (0.5, _by(generated.nested)),
    "huge": (1, _by(generated.huge)),
    "lengths": (4, lengths),
    "heads": (3, heads),
    "headers": (4, headers),
    "paths": (5, paths),
    "settling": (1, settling),
    "explanations": (4, explanations),
    "hang-up": (2, hang_up),
    "long-bodies": (0.3, long_bodies),
    "long-heads": (0.3, long_heads),
    "vast-heads": (0.02, vast_heads),
    "held": (0.02, held),
    "constraints": (0.05, constraints),
    "keyed": (0.05, keyed),
    "cut-bodies": (3, cut_bodies),
    "largest-cycles": (0.05, largest_cycles),
}
"""How often, and how."""


def made(seed: int, number: int, families: Mapping[str, tuple[float, Family]] = FAMILIES) -> Case:
    """The case of this number, whatever was made before. ``families``: to choose from; which it is decides it."""
    weights = [weight for weight, _ in families.values()]
    (name,) = Random(f"requests {seed} {number}").choices(tuple(families), weights)
    random = Random(f"requests {seed} {number} {name}")
    it = families[name][1](random, number)
    pieces, asks, waits = tuple(it.pieces), tuple(it.asks), tuple(it.waits)
    return Case(number, name, it.to, pieces, asks, it.due, waits, it.refusable)
