"""Cases about SelectorSpread, and what the plugin of the last Kubernetes that has it scores in them.

    python -m tests.conformance.selector_spread              # asks again and compares; 1 if anything differs
    python -m tests.conformance.selector_spread --count 4000 --seed 7
    python -m tests.conformance.selector_spread --record     # writes the vectors that `make test` reads

The program that answers is `selector_spread/main.go`, built with the sources of that release in a throw-away module of
its own, which takes some minutes the first time. `make test` reads the vectors alone.
"""

import argparse
import gzip
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from app.analysis.evaluate import Evaluator
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.conformance.draft import HARD, REGION, SCHEDULER, SOFT, ZONE, Draft, Json, draw_traits
from tests.controlplane.binaries import FORMER, BuildError, program

SOURCES: Final = Path(__file__).parent / "selector_spread"
VECTORS: Final = Path(__file__).parent / "vectors" / "selector-spread"
(RELEASE,) = FORMER
NAME: Final = "SelectorSpread"
SEED: Final = 1
COUNT: Final = 300

_FORMER_LABELS: Final = {
    ZONE: "failure-domain.beta.kubernetes.io/zone",
    REGION: "failure-domain.beta.kubernetes.io/region",
}


class SelectorDraft(Draft):
    """Pods that Services select and workloads own, on nodes whose zones have labels of both kinds, or none."""

    def __init__(self, random: Random) -> None:
        self.former = random.choice((0, 0, 0.3, 1))
        super().__init__(random, draw_traits(random, keyless=random.choice((0, 0.2, 1)), tainted=0, affinity=0))
        if self.chance(0.08):
            self.pod["spec"]["topologySpreadConstraints"] = self.constraints({HARD: 0, SOFT: 1})
        self.add_owners()
        self.populate()

    def _node_labels(self, name: str) -> Json:
        labels = super()._node_labels(name)
        for now, then in _FORMER_LABELS.items():
            if self.chance(self.former):
                labels[then] = self._domain(now, name)
                if self.chance(0.5):
                    labels.pop(now, None)
        return labels

    def profile(self, plugin_config: list[Json]) -> Json:
        names = (NAME, "PrioritySort", "DefaultBinder")
        enabled = [{"name": name} for name in names]
        plugins = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}
        return {"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": plugin_config}


def cases(seed: int, count: int) -> list[bytes]:
    """Cases as JSON lines, always the same."""
    names = [f"selector-spread-{seed}-{index}" for index in range(count)]
    drawn = (SelectorDraft(Random(name)).case(name) for name in names)
    return [json.dumps(it, separators=(",", ":")).encode() + b"\n" for it in drawn]


def revision() -> str:
    """Tells one state of the Go program from another."""
    return hashlib.sha256((SOURCES / "main.go").read_bytes()).hexdigest()[:12]


def answered(asked: Sequence[bytes]) -> list[Json]:
    """What the Go plugin says. Raises `BuildError`."""
    command = [str(program(SOURCES, f"selector-spread-{revision()}", RELEASE))]
    done = subprocess.run(command, input=b"".join(asked), capture_output=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(asked: Sequence[bytes]) -> list[Json]:
    """What Homeport says, in the same words but for the raw scores."""
    evaluator = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    verdicts = (json.loads(evaluator.evaluate(line)) for line in asked)
    return [{"name": it["name"], "score": {node: by[NAME] for node, by in it["score"].items()}} for it in verdicts]


def normalized(said: Sequence[Json]) -> list[Json]:
    """The Go plugin's answers without the raw scores."""
    return [{"name": it["name"], "score": it["score"]} for it in said]


def recorded() -> tuple[list[bytes], list[Json]]:
    """The cases and the answers, as checked in."""
    read: dict[str, list[bytes]] = {}
    for part in ("cases", "said"):
        with gzip.open(VECTORS / f"{part}.jsonl.gz") as file:
            read[part] = file.readlines()
    return read["cases"], [json.loads(line) for line in read["said"]]


def _record(asked: Sequence[bytes], said: Sequence[Any]) -> None:
    VECTORS.mkdir(exist_ok=True)
    lines = [json.dumps(it, separators=(",", ":"), sort_keys=True).encode() + b"\n" for it in said]
    for part, each in (("cases", asked), ("said", lines)):
        (VECTORS / f"{part}.jsonl.gz").write_bytes(gzip.compress(b"".join(each), 9, mtime=0))
    made = {"kubernetes": RELEASE, "seed": SEED, "program": revision()}
    (VECTORS / "provenance.json").write_text(json.dumps(made, indent=2) + "\n")


def main() -> int:
    """0 if Homeport says what the Go plugin says."""
    parser = argparse.ArgumentParser("python -m tests.conformance.selector_spread", description="Ask SelectorSpread.")
    parser.add_argument("--count", type=int, default=COUNT, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--record", action="store_true", help="write the vectors: of the defaults")
    arguments = parser.parse_args()
    asked = cases(SEED, COUNT) if arguments.record else cases(arguments.seed, arguments.count)
    try:
        said = answered(asked)
    except (BuildError, OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if arguments.record:
        _record(asked, said)
    pairs = zip(normalized(said), ours(asked), strict=True)
    differ = [theirs["name"] for theirs, its in pairs if theirs != its]
    apart = sum(len(set(it["score"].values())) > 1 for it in said)
    sys.stdout.write(f"{len(asked)} cases, {len(differ)} differ, {apart} tell nodes apart\n")
    if differ:
        sys.stderr.write(f"error: {', '.join(differ[:10])}\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
