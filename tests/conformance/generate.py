"""Generates clusters with one pending pod each, to ask plugins about: small, nasty, the same for one seed.

    python -m tests.conformance.generate --topic hard --count 100 --seed 1      # a case a line, on standard output

Knows nothing of Homeport. Objects are such as an API server would have stored, labels changed since included. A case
depends on its topic, seed and index alone, so that any one of them can be made again.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.conformance import affinity, allocations, dra, interpod, per_node, preemption, volumes, whole_profile
from tests.conformance.draft import HARD, HOSTNAME, SOFT, ZONE, Draft, Json, draw_traits


def _own(kinds: Mapping[str, float], **traits: Any) -> Callable[[Random], Draft]:
    """Pods with constraints of their own."""

    def draw(random: Random) -> Draft:
        draft = Draft(random, draw_traits(random, **traits))
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints(kinds)
        return draft.populate()

    return draw


def _defaults(random: Random) -> Draft:
    """Mostly pods without constraints, selected by Services and owned by workloads."""
    draft = Draft(random, draw_traits(random))
    draft.config = draft.default_config()
    if draft.chance(0.08):
        draft.pod["spec"]["topologySpreadConstraints"] = draft.constraints({HARD: 1, SOFT: 1})
    draft.add_owners()
    return draft.populate()


def _deployment(random: Random) -> Draft:
    """What people run: replicas of a Deployment in even zones, with the constraints that manuals recommend."""
    draft = Draft(random, draw_traits(random, keyless=0, domains=3, foreign=0.2, odd=0.1, nominated=1, odd_profile=0))
    draft.labels.update({"app": "web", "pod-template-hash": "77c9"})
    for index, node in enumerate(draft.nodes):
        node["metadata"]["labels"].update({ZONE: f"t{index % 3}", HOSTNAME: f"n{index}"})
    constraints: list[Json] = [
        {"maxSkew": draft.random.choice((1, 1, 2)), "topologyKey": ZONE, "whenUnsatisfiable": HARD},
        {"maxSkew": draft.random.choice((1, 1, 3)), "topologyKey": HOSTNAME, "whenUnsatisfiable": SOFT},
    ]
    for each in constraints:
        each["labelSelector"] = {"matchLabels": {"app": "web"}}
        if draft.chance(0.4):
            each["matchLabelKeys"] = ["pod-template-hash"]
    draft.pod = draft.pending()
    draft.pod["spec"]["topologySpreadConstraints"] = draft.some(constraints, 1, 2)
    draft.add_owners()
    return draft.populate()


SPREADING: Final[Mapping[str, Callable[[Random], Draft]]] = {
    "hard": _own({HARD: 1}),
    "soft": _own({SOFT: 1}),
    "mixed": _own({HARD: 1, SOFT: 1}),
    "policies": _own({HARD: 2, SOFT: 1}, affinity=1, tainted=0.5, tolerant=0.5),
    "nominated": _own({HARD: 4, SOFT: 1}, nominated=8, odd=0.1),
    "defaults": _defaults,
    "deployment": _deployment,
}
"""Topics of PodTopologySpread alone."""

_OTHERS: Final = (per_node, affinity, allocations, interpod, volumes, dra, preemption, whole_profile)
"""Modules of further topics."""

TOPICS: Final[Mapping[str, Callable[[Random], Draft]]] = {
    **SPREADING,
    **{topic: draw for module in _OTHERS for topic, draw in module.TOPICS.items()},
}

UNLAWFUL: Final = per_node.UNLAWFUL | affinity.UNLAWFUL | allocations.UNLAWFUL
"""Topics with objects that API validation refuses."""

NOT_BEFORE: Final[Mapping[str, str]] = dict.fromkeys(affinity.SINCE_136, "1.36")
"""The first minor that is asked about a topic, where older ones say something else."""


def revision() -> str:
    """Tells one state of the generators, that of histories included, from another."""
    here = Path(__file__)
    others = (here.with_name(f"{module.__name__.rpartition('.')[2]}.py") for module in _OTHERS)
    sources = (here, here.with_name("draft.py"), here.with_name("histories.py"), *others)
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def case(topic: str, seed: int, index: int) -> Json:
    """The case of this name, always the same one for one revision."""
    name = f"{topic}-{seed}-{index}"
    return TOPICS[topic](Random(name)).case(name)


def cases(topic: str, seed: int, indices: Iterable[int]) -> Iterator[bytes]:
    """Cases as JSON lines."""
    for index in indices:
        yield line(case(topic, seed, index))


def line(found: Mapping[str, Any]) -> bytes:
    """One JSON line."""
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"


def main() -> int:
    """Write cases to standard output."""
    parser = argparse.ArgumentParser("python -m tests.conformance.generate", description="Generate cases.")
    parser.add_argument("--topic", choices=list(TOPICS), required=True)
    parser.add_argument("--count", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    arguments = parser.parse_args()
    sys.stdout.buffer.writelines(cases(arguments.topic, arguments.seed, range(arguments.count)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
