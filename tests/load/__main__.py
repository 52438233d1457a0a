"""Every benchmark, one after the other, in processes of their own; what they found is printed as one JSON object.

python -m tests.load                   # everything: about four and a half hours
python -m tests.load --short           # the short set: about an hour
python -m tests.load --only picture,calls
python -m tests.load --try             # all of it, so small that only the harness is tried
python -m tests.load --only ratios,service --check    # ends with 1 if a limit is exceeded, and names it
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tests.load import report
from tests.load.check import exceeded


class Part(Struct, frozen=True):
    """A module, and its arguments for the full set, the short set, and to try the harness."""

    module: str
    full: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


_FEWER: Final = "--systems=in-tree,homeport,one-by-one,at-most,complete,pick"

PARTS: Final[Mapping[str, Part]] = {
    "calls": Part("bench", short=("--calls=500",), tried=("--nodes=100", "--pods=1000", "--calls=100")),
    "ratios": Part("ratios", tried=("--nodes=100", "--pods=1000", "--calls=100")),
    "picture": Part("picture", tried=("--nodes=100", "--pods=1000", "--constraints=30")),
    "hostile": Part("hostile", tried=("--nodes=200", "--pods=500", "--only=constraints")),
    "service": Part(
        "service",
        short=("--seconds=3", "--calls=2000", "--binds=2000"),
        tried=("--nodes=100", "--many-nodes=500", "--pods=1000", "--calls=100", "--seconds=0.5", "--binds=50"),
    ),
    "two snapshots": Part("two_snapshots", tried=("--nodes=100", "--pods=1000")),
    "complete": Part("complete", short=("--calls=100",), tried=("--nodes=100", "--pods=1000", "--calls=10")),
    "scheduling": Part(
        "scheduling",
        full=("--rounds=5",),
        short=("--rounds=1", "--label=short", "--part=0.5"),
        tried=("--rounds=1", "--matching=zone-hard/1000-nodes", "--scale=0.02"),
    ),
    "matrix": Part(
        "matrix",
        full=("--store=matrix.json",),
        short=("--store=matrix.json", "--cells=1000x0,1000x30"),
        tried=("--cells=20x2", "--measured=40", "--workloads=zone-hard"),
    ),
    "single pods": Part(
        "single_pods",
        short=("--rounds=1", "--seconds=30"),
        tried=("--nodes=20", "--fill=2", "--seconds=3", "--rounds=1"),
    ),
    "fewer": Part(
        "scheduling",
        full=("--rounds=3", "--matching=1000-nodes", _FEWER),
        short=("--rounds=1", "--matching=zone-soft/1000-nodes,host-hard/1000-nodes", "--part=0.5", _FEWER),
        tried=("--rounds=1", "--matching=zone-hard-host-soft/1000-nodes", "--scale=0.02", _FEWER),
    ),
}


def run(part: Part, arguments: Sequence[str]) -> Any:
    """What a part prints. Raises ``CalledProcessError``."""
    command = [sys.executable, "-m", f"tests.load.{part.module}", *arguments]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main() -> int:
    """1 if it was to be checked and a limit is exceeded."""
    parser = argparse.ArgumentParser("python -m tests.load", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--short", dest="set", action="store_const", const="short", default="full")
    chosen.add_argument("--try", dest="set", action="store_const", const="tried")
    parser.add_argument("--only", default="", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--output", default="", help="also write the JSON to this file")
    parser.add_argument("--check", action="store_true", help="end with 1 if a limit is exceeded, and say which")
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": report.machine(), "set": given.set}
    for name in given.only.split(",") if given.only else PARTS:
        part, began = PARTS[name], time.monotonic()
        report.say(f"\n==> {name}")
        found[name] = run(part, getattr(part, given.set))
        report.say(f"==> {name}: {time.monotonic() - began:.0f} s")
    report.publish(found, given.output)
    missed = exceeded(found) if given.check else []
    for it in missed:
        report.say(f"exceeded: {it}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
