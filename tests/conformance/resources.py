"""Questions about quantities, what pods request, nodes with pods on them and patterns, and what Go says to them.

    python -m tests.conformance.resources              # asks again and compares with the vectors; 1 if they differ
    python -m tests.conformance.resources --record     # writes the vectors that `make test` reads

The program that answers is `resources/main.go`, built as the oracle is. A question a line:

    {"quantity": "1.5Gi"}                           "value" and "milli", or "error": true
    {"sum": ["1", "2Ki", …]}                        the same of their sum; "more": whether the first exceeds the second
    {"node": {…}, "pods": […], "ports": [{…}]}      "allocatable", "requested", "nonZeroRequested", "ports" of the node;
                                                    "conflicts": for each port asked about, whether it is taken;
                                                    "incoming": what each pod asks for while it waits ("requests"),
                                                    and with defaults for what it does not say ("nonZero")
    {"pattern": "a+$", "texts": ["a", …]}           "found": for each text, whether it is; or "error": true
"""

import argparse
import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Raw

from tests.controlplane.binaries import DEFAULT_KUBERNETES, BuildError, program

SOURCES: Final = Path(__file__).parent / "resources"
VECTORS: Final = Path(__file__).parent / "vectors" / "resources"
SEED: Final = 1
QUANTITIES: Final = 6000
SUMS: Final = 2000
NODES: Final = 1500
PATTERNS: Final = 3000

Json = dict[str, Any]

_SUFFIXES: Final = ("", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EDGES: Final = """
    0 -0 +0 000 0.0 .5 -.5 5. 1.G . - + -. 0x1 1_0 m Ki Ei -Ei .Ei 0Ei -0Ei e3 E e 1e 1E 1e+ 1E+3 1e-3 1E-3 1e3m
    1Ki5 1m3 1mi 1K 1ki 1Kii 1EE 1Ei3 1E3i --1 +-1 -+1 1- 1.2.3 1..2 ..5 0.1m 0.1n 1n 1.5n -1.5n 0.5 -0.5 -1.5
    1.0000000001 -1.0000000001 1001u -1001u 9223372036854775807 9223372036854775808 -9223372036854775808
    -9223372036854775809 9999999999999999999 9223372036854775807m 99999999999999999999999 9E 9.3E 10E -10E 7Ei 8Ei
    9Ei -9Ei 0.5Ei 1e18 1e19 1e30 -1e30 1e63 1e64 1e-9 1e-10 1e-30 123456789012345678e10 1e100 1e999
    1234567890123456789e30 1e4294967296 1e4294967299 1e9223372036854775808 0.000000000000000000001
    1234567890123456789. 1234567890123456789.5 12345678901234567.5 -12345678901234567.5 -1234567890123456789.5
    0.1Ki 1.1Ki -1.1Ki 0.0001Ki 1.00000000001Gi 99999999999Ki 999999999999Ki 99999Gi 100Ti ٣ 1é true Inf NaN 1\\u0030
    0000000000000000000000000000000000000000000000000000000000001Ki
    1111111111111111111111111111111111111111111111111111111111111111
""".split()  # noqa: SIM905  # as a list it fills a page
_SPACED: Final = ("", " ", " 1 ", "1 1", "\u00a01Ki\u2003")
_RAW: Final = (b"null", b"0", b"1", b"-1", b"1.5", b"1e3", b"1E-3", b"-0.25", b"true", b"{}", b"[]", b"1e30")


def _digits(random: Random) -> str:
    return "".join(random.choices("0123456789", k=random.choice((0, 1, 1, 2, 3, 3, 5, 8, 12, 17, 18, 19, 20, 25))))


def _text(random: Random) -> str:
    """Mostly well-formed, of every form and around every limit."""
    number: str = random.choice(("", "", "", "-", "+")) + _digits(random)
    if random.random() < 0.4:
        number += "." + _digits(random)
    suffix = random.choice(_SUFFIXES)
    if random.random() < 0.2:
        suffix = random.choice("eE") + random.choice(("", "-", "+")) + str(random.choice((0, 3, 6, 9, 18, 19, 27, 40)))
    text = f"{number}{suffix}"
    if random.random() < 0.05:
        text = text.replace(random.choice(text or " "), random.choice("0.-eKi"), 1)
    return text[:64]


def quantities(random: Random) -> Iterator[Json]:
    """JSON numbers and strings, some of them no quantity."""
    yield from ({"quantity": Raw(raw)} for raw in _RAW)
    yield from ({"quantity": text} for text in (*_EDGES, *_SPACED))
    yield from ({"quantity": _text(random)} for _ in range(QUANTITIES))


def sums(random: Random) -> Iterator[Json]:
    """Of two to four."""
    for _ in range(SUMS):
        yield {"sum": [_text(random) for _ in range(random.randint(2, 4))]}


# In no form that Go keeps as a pointer, such as 1.5Gi: where a pod as a whole asks for that, its PodRequests adds the
# overhead to the pod itself, once more at every call. The API server writes no such form of an amount of this size.
_AMOUNTS: Final = {
    "cpu": ("0", "100m", "0.25", "1", "1.5", "250m", "0.1m", "333333u", "2"),
    "memory": ("0", "64Mi", "1Gi", "1536Mi", "500M", "123456789", "1e9", "0.5", "128974848000m"),
    "ephemeral-storage": ("0", "1Gi", "10G", "2560Mi"),
    "hugepages-2Mi": ("2Mi", "4Mi", "0"),
    "example.com/gpu": ("1", "2", "0"),
    "example.com/0.5": ("1500m", "1"),
    "attachable-volumes-csi-x": ("1",),
    "x.kubernetes.io/y": ("3",),
    "requests.example.com/no": ("1",),
    "storage": ("1Gi",),
    "Bad_.com/x": ("1",),
    "example.com/-bad": ("1",),
}
_OF_PODS: Final = ("cpu", "memory", "hugepages-2Mi", "example.com/gpu")
_IPS: Final = (None, "", "0.0.0.0", "127.0.0.1", "10.0.0.1")
_PROTOCOLS: Final = (None, "", "TCP", "UDP", "SCTP")


class _Pods:
    """Draws pods: mostly plain ones, and with few names and amounts, so that most meet."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def _chance(self, part: float) -> bool:
        return self._random.random() < part

    def requests(self, names: Sequence[str] = tuple(_AMOUNTS)) -> Json:
        likely = [name for name in names if self._chance(0.7 if name in ("cpu", "memory") else 0.1)]
        return {name: self._random.choice(_AMOUNTS[name]) for name in likely}

    def _requirements(self, names: Sequence[str] = tuple(_AMOUNTS)) -> Json:
        if self._chance(0.1):
            return {}
        return {"resources": {"requests": self.requests(names), "limits": self.requests(names)}}

    def port(self) -> Json:
        number = self._random.choice((80, 81, 443))
        found = {"hostIP": self._random.choice(_IPS), "protocol": self._random.choice(_PROTOCOLS)}
        host = {"hostPort": number} if self._chance(0.6) else {}
        return {"containerPort": number, **{name: it for name, it in found.items() if it is not None}, **host}

    def _container(self, name: str, *, init: bool = False) -> Json:
        found: Json = {"name": name, "image": "example.com/web:1", **self._requirements()}
        if self._chance(0.3):
            found["ports"] = [self.port() for _ in range(self._random.randint(0, 2))]
        if init and self._chance(0.5):
            found["restartPolicy"] = "Always"
        return found

    def _status(self, container: Json) -> Json:
        """As a kubelet that can resize pods in place reports it; often the same as the spec says."""
        spec = container.get("resources", {}).get("requests", {})
        found: Json = {"name": container["name"], "restartCount": 0}
        if self._chance(0.8):
            found["resources"] = {"requests": spec if self._chance(0.5) else self.requests()}
        if self._chance(0.7):
            found["allocatedResources"] = spec if self._chance(0.5) else self.requests()
        return found

    def pod(self, number: int) -> Json:
        containers = [self._container(f"c{it}") for it in range(self._random.choice((1, 1, 1, 2, 3)))]
        inits = [self._container(f"i{it}", init=True) for it in range(self._random.choice((0, 0, 0, 1, 2, 3)))]
        spec: Json = {"containers": containers}
        if inits:
            spec["initContainers"] = inits
        if self._chance(0.2):
            spec["overhead"] = self.requests(("cpu", "memory"))
        if self._chance(0.25):
            spec |= self._requirements(_OF_PODS)
        status: Json = {"phase": "Running"}
        if self._chance(0.4):
            status["containerStatuses"] = [self._status(it) for it in containers if self._chance(0.9)]
            status["initContainerStatuses"] = [self._status(it) for it in inits if self._chance(0.9)]
        if self._chance(0.2):
            status["resources"] = {"requests": self.requests(_OF_PODS)}
            status["allocatedResources"] = self.requests(_OF_PODS)
        if self._chance(0.2):
            reason = self._random.choice(("Infeasible", "Deferred"))
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        metadata = {"name": f"p{number}", "namespace": "default", "uid": f"uid-{number}"}
        return {"metadata": metadata, "spec": spec, "status": status}

    def node(self) -> Json:
        allocatable = {**self.requests(), "pods": self._random.choice(("110", "0", "2", "1k"))}
        return {"metadata": {"name": "n1", "uid": "node"}, "status": {"allocatable": allocatable}}


def nodes(random: Random) -> Iterator[Json]:
    """A node with up to four pods on it, of which many have the same ports."""
    pods = _Pods(random)
    for _ in range(NODES):
        asked = [(port.get("hostIP", ""), port.get("protocol", "")) for port in (pods.port() for _ in range(4))]
        yield {
            "node": pods.node(),
            "pods": [pods.pod(number) for number in range(random.randint(0, 4))],
            "ports": [{"ip": ip, "protocol": it, "port": random.choice((80, 81, 443))} for ip, it in asked],
        }


_ORDINARY: Final = r"a b k é 0 - . ^ $ | a* .* [ab]+ (a|b) \d \pL (?i) b? {2}".split()  # noqa: SIM905  # shorter
_PARTS: Final = r"""
    a b k K 0 _ - é ß . ^ $ | ( ) * + ? \d \D \w \W \s \S \b \B \A \z \Z \. \n \t \x41 \x{e9} \x{3c3} \x{17f}
    \x{10FFFF} \C \Qa.b\E \1 \8 \07 \u0041 \e \pL \PL \pN \p{Greek} \P{Greek} \p{^Greek} \p{Letter} \p{greek}
    \p{Lu} \p{LC} \p{None} [ab] [^a] [a-] [-a] []a] [^]a] [b-a] [a-zA-Z0-9] [[:alpha:]] [[:^alpha:]] [[:word:]]
    [[:none:]] [:alpha:] [\d] [^\d\s] [\pL] [\W] [^\n] [\x{3b1}-\x{3c9}] [a\]b] [\b] [a-\d] [[a] (a|b) (?:a|)
    (?P<n>a) (?<m>b) (?'m'b) (?i) (?i:k) (?s) (?m) (?U) (?-s) (?x) (?=a) (?!a) (?<=a) (?>a) (?#a) {2} {0} {1,} {,2}
    {0,1} {2,1} {1000} {1001} {a} *? +? ?? {2}? ** *+ a{2}{3} (a{30}){40}
""".split()  # noqa: SIM905  # as a list it fills a page
_TEXTS: Final = (
    *"a b ab ba aa aab abab K k kK 0 a0 1 _ - a-b é É aé s ß a.b ] A100 H100-80GB nvidia {2} a{,2}".split(),  # noqa: SIM905  # shorter
    *(
        "",
        " ",
        "a b",
        "\n",
        "a\n",
        "a\nb",
        "b\na\n",
        "\t",
        "\0",
        "\u212a",
        "\u017f",
        "\u2028",
        "\u1e9e",
        "\u03c3",
        "\u03c2",
    ),
)


def patterns(random: Random) -> Iterator[Json]:
    """Each part alone, and one to six in a row: ordinary ones alone, or any."""
    yield from ({"pattern": part, "texts": _TEXTS} for part in _PARTS)
    for _ in range(PATTERNS):
        parts = random.choices(random.choice((_ORDINARY, _PARTS)), k=random.randint(1, 6))
        yield {"pattern": "".join(parts), "texts": random.sample(_TEXTS, 12)}


def questions(topic: str) -> Iterator[bytes]:
    """A line each, the same at every call."""
    made = TOPICS[topic](Random(f"{topic}-{SEED}"))
    return (msgspec.json.encode(it) + b"\n" for it in made)


TOPICS: Final = {"quantities": quantities, "sums": sums, "nodes": nodes, "patterns": patterns}


def revision() -> str:
    """Tells one state of the Go program from another."""
    return hashlib.sha256((SOURCES / "main.go").read_bytes()).hexdigest()[:12]


def answered(asked: Sequence[bytes]) -> list[bytes]:
    """What Go says, line for line. Raises `BuildError`."""
    command = [str(program(SOURCES, f"resources-{revision()}"))]
    done = subprocess.run(command, input=b"".join(asked), capture_output=True, check=True)
    return done.stdout.splitlines(keepends=True)


def recorded(topic: str, part: str) -> list[bytes]:
    """The ``asked`` or the ``said`` of a topic, as checked in."""
    return gzip.decompress((VECTORS / f"{topic}.{part}.jsonl.gz").read_bytes()).splitlines(keepends=True)


def _record(topic: str, asked: Sequence[bytes], said: Sequence[bytes]) -> None:
    VECTORS.mkdir(exist_ok=True)
    for part, lines in (("asked", asked), ("said", said)):
        (VECTORS / f"{topic}.{part}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), mtime=0))


def main() -> int:
    """0 if Go says what the vectors say."""
    parser = argparse.ArgumentParser("python -m tests.conformance.resources", description="Ask Go about resources.")
    parser.add_argument("--record", action="store_true", help="write the vectors")
    record = parser.parse_args().record
    differ = []
    try:
        for topic in TOPICS:
            asked = list(questions(topic))
            said = answered(asked)
            if record:
                _record(topic, asked, said)
            elif [recorded(topic, "asked"), recorded(topic, "said")] != [asked, said]:
                differ.append(topic)
            sys.stdout.write(f"{topic}: {len(asked)} questions, {sum(b'error' in it for it in said)} errors\n")
    except (BuildError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if record:
        made = {"kubernetes": DEFAULT_KUBERNETES, "seed": SEED, "program": revision()}
        (VECTORS / "provenance.json").write_text(json.dumps(made, indent=2) + "\n")
    if differ:
        sys.stderr.write(f"error: the vectors of {', '.join(differ)} say something else\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
