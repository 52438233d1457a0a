"""Questions about quantities, about what pods request, and about nodes with pods on them, and what Go says to them.

    python -m tests.conformance.resources              # asks again and compares with the vectors; 1 if they differ
    python -m tests.conformance.resources --record     # writes the vectors that `make test` reads

The program that answers is `resources/main.go`, built as the oracle is. A question a line:

    {"quantity": "1.5Gi"}                           "value" and "milli", or "error": true
    {"sum": ["1", "2Ki", …]}                        the same of their sum; "more": whether the first exceeds the second
    {"node": {…}, "pods": […], "ports": [{…}]}      "allocatable", "requested", "nonZeroRequested", "ports" of the node;
                                                    "conflicts": for each port asked about, whether it is taken;
                                                    "incoming": what each pod asks for while it waits
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


def questions(topic: str) -> Iterator[bytes]:
    """A line each, the same at every call."""
    made = TOPICS[topic](Random(f"{topic}-{SEED}"))
    return (msgspec.json.encode(it) + b"\n" for it in made)


TOPICS: Final = {"quantities": quantities, "sums": sums}


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
