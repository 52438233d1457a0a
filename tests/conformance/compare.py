"""Asks Homeport and the Go oracles about generated cases, and counts where they differ.

    python -m tests.conformance.compare                                  # COUNT, SEED, MINOR and TOPIC as below
    python -m tests.conformance.compare --count 2000 --seed 7 --minor 1.36.3 --topic taints together
    python -m tests.conformance.compare --count 7000 --record            # writes the vectors that `make test` runs

Prints a table and, as its last line, the same as JSON. Ends with 1 if any case differs; the first of them are written
to `build/conformance/`, each with what either side says.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from app.analysis.evaluate import Evaluator
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.conformance import generate, oracle
from tests.conformance.dra import ONLY_IN
from tests.conformance.histories import ASKED, HISTORIES, History
from tests.conformance.replay import replayed
from tests.controlplane.binaries import DEFAULT_KUBERNETES, RELEASES, BuildError

ROOT: Final = Path(__file__).parents[2]
FOUND: Final = ROOT / "build" / "conformance"
VECTORS: Final = Path(__file__).parent / "vectors" / "generated"
BATCH: Final = 500
"""Cases that one process is asked about."""
WRITTEN: Final = 10
"""Differing cases that are kept of each topic and release."""

_ORDERED: Final = ("Too many pods", *(f"Insufficient {it}" for it in ("cpu", "memory", "ephemeral-storage")))
_INVALID_SCORE: Final = re.compile(r'plugin "\w+" returns an invalid score -?\d+')

TOPICS: Final = (*generate.TOPICS, *HISTORIES)


@dataclass
class Tally:
    """What came of one topic and release. ``mixed``: nodes of one case fared differently, in Filter or in score."""

    minor: str
    topic: str
    cases: int = 0
    equal: int = 0
    differing: int = 0
    errors: int = 0
    mixed: int = 0

    def count(self, expected: Mapping[str, Any], *, equal: bool) -> None:
        self.cases += 1
        self.equal += equal
        self.differing += not equal
        self.errors += "error" in expected
        self.mixed += is_mixed(expected)


@dataclass(frozen=True)
class Batch:
    """Some cases of one topic. ``ours`` asks Homeport as of a release; ``recorded`` is what it is asked with, as
    vectors keep it.
    """

    topic: str
    cases: Sequence[bytes]
    ours: Callable[[str], Sequence[bytes]]
    recorded: Mapping[str, Sequence[bytes]]


@dataclass(frozen=True)
class Answers:
    """What everybody said about a batch, line for line: Homeport and the oracle as of each release, the API server.

    The API server is not asked about what it is known to refuse: ``validated`` is empty then.
    """

    ours: Mapping[str, Sequence[bytes]]
    theirs: Mapping[str, Sequence[bytes]]
    validated: Sequence[bytes]


def is_mixed(verdict: Mapping[str, Any]) -> bool:
    """Whether a verdict tells nodes apart: one that does not is easily right for the wrong reason.

    Where a preemption is asked about, by who would have to go, or why that would not help.
    """
    filtered = {(status["code"], *status["reasons"]) for status in verdict.get("filter", {}).values()}
    scores = {tuple(sorted(scores.items())) for scores in verdict.get("score", {}).values()}
    preempted = {(len(it["pods"]), it["numPDBViolations"]) for it in verdict.get("victims", {}).values()}
    vain = {(status["code"], status["plugin"]) for status in verdict.get("noVictims", {}).values()}
    return len(filtered) > 1 or len(scores) > 1 or len(preempted) + len(vain) > 1


def settled(line: bytes) -> dict[str, Any]:
    """A verdict without what is left to chance in Go.

    NodeResourcesFit names extended resources, huge pages and volumes in the order of a map, after the others. Which of
    several scores out of range is told is a race between nodes.
    """
    verdict: dict[str, Any] = json.loads(line)
    if "error" in verdict:
        verdict["error"] = _INVALID_SCORE.sub("a plugin returns an invalid score", verdict["error"])
    for status in verdict.get("filter", {}).values():
        if status["plugin"] == "NodeResourcesFit":
            reasons = status["reasons"]
            first = [it for it in reasons if it in _ORDERED]
            status["reasons"] = first + sorted(reasons[len(first) :])
    return verdict


class InvalidCaseError(Exception):
    """The API server would refuse an object of a generated case: the generator has a mistake."""


def batches(count: int, seed: int, topics: Sequence[str]) -> Iterator[Batch]:
    """Equally many cases of each topic."""
    each = -(-count // len(topics))
    for topic in topics:
        yield from _histories(topic, each, seed) if topic in HISTORIES else _cases(topic, each, seed)


def _cases(topic: str, each: int, seed: int) -> Iterator[Batch]:
    for start in range(0, each, BATCH):
        cases = list(generate.cases(topic, seed, range(start, min(start + BATCH, each))))
        yield Batch(topic, cases, partial(_evaluated, cases), {"cases": cases})


def _histories(topic: str, each: int, seed: int) -> Iterator[Batch]:
    for start in range(0, -(-each // ASKED), BATCH // ASKED):
        indices = range(start, min(start + BATCH // ASKED, -(-each // ASKED)))
        histories = [HISTORIES[topic](seed, index) for index in indices]
        cases = [generate.line(case) for history in histories for case in history.cases]
        stories = [generate.line(history.story()) for history in histories]
        yield Batch(topic, cases, partial(_replayed, histories), {"stories": stories})


def _evaluated(cases: Sequence[bytes], minor: str) -> list[bytes]:
    registry = Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS)
    evaluator = Evaluator(registry, Guard(Metrics()), minor.rpartition(".")[0])
    return list(map(evaluator.evaluate, cases))


def _replayed(histories: Sequence[History], _minor: str) -> list[bytes]:
    return [generate.line(verdict) for history in histories for verdict in replayed(history.config, history.events)]


def _answers(command: Sequence[str], asked: Sequence[bytes]) -> list[bytes]:
    """Line for line. Faults are logged and are answers too, so standard error matters only if the process fails."""
    done = subprocess.run(command, input=b"".join(asked), capture_output=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.decode()[-4000:]}")
    return done.stdout.splitlines(keepends=True)


def answered(pool: Executor, ours_pool: Executor, batch: Batch, oracles: Mapping[str, Path]) -> Answers:
    """Ask everybody at once. Each batch has fresh oracles, so that no release is asked too much of one."""
    oracles = {minor: path for minor, path in oracles.items() if is_asked(minor, batch.topic)}
    if not oracles:
        return Answers({}, {}, ())
    ours = {minor: ours_pool.submit(batch.ours, minor) for minor in oracles}
    theirs = {minor: pool.submit(_answers, [str(path)], batch.cases) for minor, path in oracles.items()}
    lawful = [] if batch.topic in generate.UNLAWFUL else batch.cases
    strict = pool.submit(_answers, [str(next(iter(oracles.values()))), "-validate"], lawful)
    return Answers(_results(ours), _results(theirs), strict.result())


def _results(said: Mapping[str, Future[Any]]) -> dict[str, Sequence[bytes]]:
    return {minor: it.result() for minor, it in said.items()}


def is_asked(minor: str, topic: str) -> bool:
    """Whether a release has what a topic is about."""
    first = generate.NOT_BEFORE.get(topic, "0")
    is_older = [*map(int, minor.split("."))] < [*map(int, first.split("."))]
    return not is_older and minor in ONLY_IN.get(topic, (minor,))


def _refuse_invalid(validated: Sequence[bytes]) -> None:
    for line in validated:
        found = json.loads(line)
        if found.get("invalid") != []:
            raise InvalidCaseError(f"{found['name']}: {found}")


def judge(batch: Batch, answers: Answers, tallies: dict[tuple[str, str], Tally]) -> None:
    """Count the batch, and keep what differs."""
    _refuse_invalid(answers.validated)
    for minor, said in answers.theirs.items():
        tally = tallies.setdefault((minor, batch.topic), Tally(minor, batch.topic))
        ours_by_line = map(settled, answers.ours[minor])
        for case, theirs, ours in zip(batch.cases, map(settled, said), ours_by_line, strict=True):
            tally.count(theirs, equal=theirs == ours)
            if theirs != ours and tally.differing <= WRITTEN:
                _keep(minor, json.loads(case), theirs, ours)


def _keep(minor: str, case: Mapping[str, Any], theirs: object, ours: object) -> None:
    FOUND.mkdir(parents=True, exist_ok=True)
    document = {"case": case, "expected": theirs, "actual": ours}
    (FOUND / f"{minor}-{case['name']}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def record(batch: Batch, answers: Answers, vectors: dict[str, list[bytes]]) -> None:
    """Add a batch to ``vectors``, by the name of their file.

    The verdicts are those of the default release; of another one in full where it ever says something else.
    """
    said = {minor: [generate.line(settled(it)) for it in lines] for minor, lines in answers.theirs.items()}
    for kind, lines in batch.recorded.items():
        vectors.setdefault(f"{batch.topic}.{kind}", []).extend(lines)
    for minor, lines in said.items():
        kind = "expected" if minor == DEFAULT_KUBERNETES else f"expected-{minor.rpartition('.')[0]}"
        vectors.setdefault(f"{batch.topic}.{kind}", []).extend(lines)


def _write(vectors: Mapping[str, Sequence[bytes]]) -> None:
    VECTORS.mkdir(parents=True, exist_ok=True)
    for name, lines in vectors.items():
        topic, _, kind = name.partition(".")
        if not kind.startswith("expected-") or lines != vectors[f"{topic}.expected"]:
            (VECTORS / f"{name}.jsonl.gz").write_bytes(gzip.compress(b"".join(lines), 9, mtime=0))


def table(tallies: Sequence[Tally]) -> str:
    """The tallies and their sum, for people."""
    head = ("minor", "topic", "cases", "equal", "differing", "mixed")
    rows: list[tuple[object, ...]] = [
        (it.minor, it.topic, it.cases, it.equal, it.differing, it.mixed) for it in tallies
    ]
    sums = [sum(getattr(it, name) for it in tallies) for name in head[2:]]
    shown = [[str(cell) for cell in row] for row in (head, *rows, ("all", "", *sums))]
    return "".join(f"{row[0]:<8}{row[1]:<15}" + "".join(f"{cell:>10}" for cell in row[2:]) + "\n" for row in shown)


def _provenance(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "kubernetes": arguments.minor,
        "seed": arguments.seed,
        "generator": generate.revision(),
        "oracle": oracle.revision(),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.conformance.compare", description="Compare with the Go plugins.")
    asked = os.environ.get
    parser.add_argument("--count", type=int, default=int(asked("COUNT") or 42_000), help="cases (COUNT)")
    parser.add_argument("--seed", type=int, default=int(asked("SEED") or 1), help="of the generator (SEED)")
    minors = [minor for minor in (asked("MINOR") or "").split() if minor] or list(RELEASES)
    parser.add_argument("--minor", nargs="+", choices=list(RELEASES), default=minors, help="releases (MINOR)")
    topics = (asked("TOPIC") or "").split() or list(TOPICS)
    parser.add_argument("--topic", nargs="+", choices=TOPICS, default=topics, help="what is asked (TOPIC)")
    parser.add_argument("--record", action="store_true", help="write the cases and verdicts as vectors")
    found = parser.parse_args()
    found.topic = list(dict.fromkeys(found.topic))
    if unknown := set(found.topic) - set(TOPICS):  # those of the environment are not checked by argparse
        parser.error(f"no such topic: {', '.join(sorted(unknown))}")
    return found


def run(arguments: argparse.Namespace) -> bool:
    """Compare, print, and say whether all is equal."""
    begun = time.monotonic()
    tallies: dict[tuple[str, str], Tally] = {}
    for stale in FOUND.glob("*.json"):
        stale.unlink()
    vectors: dict[str, list[bytes]] = {}
    oracles = {minor: oracle.oracle(minor) for minor in arguments.minor}
    processes = ProcessPoolExecutor(len(oracles), get_context("spawn"))
    with ThreadPoolExecutor(len(oracles) + 1) as pool, processes:
        for batch in batches(arguments.count, arguments.seed, arguments.topic):
            answers = answered(pool, processes, batch, oracles)
            judge(batch, answers, tallies)
            if arguments.record:
                record(batch, answers, vectors)
    found = sorted(tallies.values(), key=lambda it: it.minor)
    summary = {
        **_provenance(arguments),
        "seconds": round(time.monotonic() - begun),
        "topics": [asdict(it) for it in found],
    }
    _write(vectors)
    if arguments.record and set(arguments.topic) == set(TOPICS):
        (VECTORS / "provenance.json").write_text(json.dumps(_provenance(arguments), indent=2) + "\n")
    sys.stdout.write(table(found) + json.dumps(summary) + "\n")
    return not any(it.differing for it in found)


def main() -> int:
    """0 if Homeport says what the plugins say, 1 if not, or if an oracle cannot be built or a case is not valid."""
    arguments = _arguments()
    if arguments.record and DEFAULT_KUBERNETES not in arguments.minor:
        sys.stderr.write(f"error: vectors speak for {DEFAULT_KUBERNETES}\n")
        return 1
    try:
        equal = run(arguments)
    except (BuildError, InvalidCaseError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if not equal:
        sys.stderr.write(f"first differing cases: {FOUND}\n")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
