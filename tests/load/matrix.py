"""Pods per second with Homeport, compared with the in-tree plugin, by the size of the cluster and the pods per node.

    python -m tests.load.matrix --store matrix.json                      # every cell with its number of rounds
    python -m tests.load.matrix --store matrix.json --cells 1000x0,1000x30 --rounds 1
    python -m tests.load.matrix --store matrix.json --plot docs/images/matrix.svg --rounds 0    # only report and draw

A cell is a number of nodes and of existing pods on each node: ``1000x30``. ``--store`` names a file that receives each
run once it has ended. Runs that the file has are not repeated, so an interrupted benchmark goes on where it ended.
Within a round, the systems take turns. The result is the median of the ratios of the rounds. How a run is made, see
``tests/load/scheduling.py``. Prints JSON, and tables on standard error.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
from msgspec import Struct

from tests.controlplane.controlplane import ControlPlane
from tests.load import report
from tests.load.matrix_plot import Line, draw
from tests.load.quiet import Probe
from tests.load.scheduling import APISERVER_FLAGS, IN_TREE, Bench, Run, ratios_to_in_tree
from tests.load.systems import SYSTEMS
from tests.load.workload import Case, Size, Workload, load

MEASURED_SYSTEMS: Final = (IN_TREE, "homeport", "pick")
_NODES: Final = (100, 1_000, 5_000)
_FILLS: Final = (0, 10, 30, 100)
_LARGEST: Final = 200_000
"""Cells with more existing pods are left out: their control plane does not fit beside a scheduler on a small host."""

_PODS: Final = {100: 500, 1_000: 2_000}
_OTHER_PODS: Final = 1_000
"""Number of pods that are scheduled in a run, by number of nodes."""

_REPEATED: Final = ("1000x0", "1000x30", "5000x30")
"""Cells with ``_ROUNDS`` rounds, because the speed of Homeport is tuned there. All other cells have one round."""

_ROUNDS: Final = 3

_CPU: Final = "16"


class Cell(Struct, frozen=True):
    """Number of nodes, and of existing pods on each node."""

    nodes: int
    fill: int

    @classmethod
    def parse(cls, text: str) -> Cell:
        nodes, _, fill = text.partition("x")
        return cls(int(nodes), int(fill))

    @property
    def name(self) -> str:
        return f"{self.nodes}x{self.fill}"

    @property
    def rounds(self) -> int:
        return _ROUNDS if self.name in _REPEATED else 1


ALL_CELLS: Final = tuple(Cell(nodes, fill) for nodes in _NODES for fill in _FILLS if nodes * fill <= _LARGEST)


class StoredRun(Struct, frozen=True):
    """Run, with the state of the host before it."""

    run: Run
    host: Mapping[str, Any]
    quiet: Mapping[str, float]


Runs = dict[str, list[StoredRun]]


class Store:
    """Runs by cell, workload and system. With a path, each new run is written at once."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self.runs: Runs = {}
        if self._path is not None and self._path.exists():
            self.runs = msgspec.json.decode(self._path.read_bytes(), type=Runs)

    def of(self, cell: Cell, workload: str, system: str) -> list[StoredRun]:
        return self.runs.setdefault(f"{cell.name}/{workload}/{system}", [])

    def write(self) -> None:
        if self._path is not None:
            written = self._path.with_suffix(".new")
            written.write_bytes(msgspec.json.format(msgspec.json.encode(self.runs), indent=1))
            written.replace(self._path)


class Selection(Struct, frozen=True):
    """Runs to make. ``rounds`` and ``measured`` replace the numbers of a cell, unless they are ``None`` or 0."""

    cells: Sequence[Cell]
    workloads: Sequence[Workload]
    systems: Sequence[str]
    rounds: int | None
    measured: int

    def rounds_of(self, cell: Cell) -> int:
        return cell.rounds if self.rounds is None else self.rounds

    def case(self, cell: Cell, workload: Workload) -> Case:
        measured = self.measured or _PODS.get(cell.nodes, _OTHER_PODS)
        return Case(workload, Size(cell.name, cell.nodes, measured, existing=cell.nodes * cell.fill))

    def missing(self, cell: Cell, store: Store) -> Iterator[tuple[Workload, str]]:
        """Yield the workload and system of each run that the store lacks, round by round, in alternating order."""
        for number in range(self.rounds_of(cell)):
            for workload in self.workloads:
                for system in self.systems if number % 2 == 0 else reversed(self.systems):
                    if len(store.of(cell, workload.name, system)) <= number:
                        yield workload, system


def measure(selection: Selection, store: Store) -> None:
    """Make all missing runs, each cell in a cluster of its own."""
    probe = Probe()
    for cell in selection.cells:
        missing = list(selection.missing(cell, store))
        if not missing:
            continue
        with ControlPlane(apiserver_flags=APISERVER_FLAGS) as plane, tempfile.TemporaryDirectory() as folder:
            bench = Bench(plane, Path(folder), cell.nodes, cell.nodes * cell.fill, cpu=_CPU)
            for workload, system in missing:
                quiet = msgspec.to_builtins(probe.take())
                run = bench.run(selection.case(cell, workload), system)
                store.of(cell, workload.name, system).append(StoredRun(run, report.machine(), quiet))
                store.write()
                rate = f"{run.pods_per_second} pods/s, {run.unplaced} unplaced {list(run.wrong)}"
                report.say(f"{cell.name} {workload.name}: {system} {rate}")


class Result(Struct, frozen=True):
    """Result of one system for one workload in a cell. ``ratio``: to the in-tree plugin, median of ``ratios``."""

    cell: Cell
    workload: str
    system: str
    pods_per_second: float
    ratio: float | None
    ratios: Sequence[float]
    cpu_ms: Mapping[str, float]
    unplaced: int
    broken: int


def results(store: Store) -> list[Result]:
    """Return the results of all runs in the store, in the order of the cells."""
    parsed = [(Cell.parse(cell), workload, system) for cell, workload, system in (it.split("/") for it in store.runs)]
    found = []
    for cell, workload, system in sorted(parsed, key=lambda it: (it[0].nodes, it[0].fill)):
        runs = [it.run for it in store.of(cell, workload, system)]
        if not runs:
            continue
        beside = [it.run for it in store.of(cell, workload, IN_TREE)]
        ratios = [] if system == IN_TREE else ratios_to_in_tree({IN_TREE: beside, system: runs}, system)
        processes = {name: [it.cpu_ms[name] or 0.0 for it in runs] for name in runs[0].cpu_ms}
        found.append(
            Result(
                cell,
                workload,
                system,
                median(it.pods_per_second for it in runs),
                round(median(ratios), 2) if ratios else None,
                ratios,
                {name: round(median(times), 2) for name, times in processes.items()},
                sum(it.unplaced for it in runs),
                sum(len(it.wrong) for it in runs),
            )
        )
    return found


def lines(found: Sequence[Result]) -> list[Line]:
    """Return the ratios by pods per node: one line for each number of nodes, workload and system."""
    made: dict[tuple[int, str, str], dict[int, float]] = {}
    for it in found:
        if it.ratio is not None:
            made.setdefault((it.cell.nodes, it.workload, it.system), {})[it.cell.fill] = it.ratio
    return [Line(*key, points) for key, points in made.items()]


def break_even(points: Mapping[int, float]) -> str:
    """Return the pods per node at which the ratio is 1, interpolated between two measured cells.

    ``< 10``: the ratio is above 1 in the emptiest measured cell, 10. ``> 30``: it is below 1 in the fullest, 30.
    """
    fills = sorted(points)
    if points[fills[0]] >= 1:
        return f"< {fills[0]}" if fills[0] else "0"
    for less, more in pairwise(fills):
        if points[less] < 1 <= points[more]:
            return f"{less + (more - less) * (1 - points[less]) / (points[more] - points[less]):.0f}"
    return f"> {fills[-1]}"


def show(found: Sequence[Result], drawn: Sequence[Line]) -> None:
    report.table(
        ("nodes", "pods on each", "workload", "system", "pods/s", "ratio", "of each round", "unplaced", "broken"),
        [
            (
                it.cell.nodes,
                it.cell.fill,
                it.workload,
                it.system,
                it.pods_per_second,
                it.ratio,
                ", ".join(map(str, it.ratios)),
                it.unplaced,
                it.broken,
            )
            for it in found
        ],
    )
    processes = ("kube-scheduler", "extender", "kube-apiserver", "etcd")
    report.table(
        ("processor time, ms a pod", "workload", "system", *processes),
        [(it.cell.name, it.workload, it.system, *(it.cpu_ms.get(name) for name in processes)) for it in found],
    )
    report.table(
        ("nodes", "workload", "system", "pods per node at ratio 1"),
        [(it.nodes, it.workload, it.system, break_even(it.points)) for it in drawn],
    )


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.matrix", description=__doc__.partition("\n")[0])
    parser.add_argument("--store", default="", help="file of the runs; without it, they are only printed")
    parser.add_argument("--cells", default=",".join(it.name for it in ALL_CELLS), help="default: %(default)s")
    parser.add_argument("--workloads", default="", help="names; default: all")
    parser.add_argument("--systems", default=",".join(MEASURED_SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--rounds", type=int, help="default: 3 for cells with a goal, 1 for the others")
    parser.add_argument("--measured", type=int, default=0, help="pods to schedule in a run")
    parser.add_argument("--plot", default="", help="SVG file to draw")
    given = parser.parse_args()
    names = given.workloads.split(",") if given.workloads else ()
    selection = Selection(
        [Cell.parse(it) for it in given.cells.split(",")],
        [it for it in load("scheduling") if not names or it.name in names],
        given.systems.split(","),
        given.rounds,
        given.measured,
    )
    store = Store(given.store)
    measure(selection, store)
    found = results(store)
    drawn = lines(found)
    show(found, drawn)
    if given.plot:
        Path(given.plot).write_text(draw(drawn), encoding="utf-8")
    print(json.dumps({"machine": report.machine(), "matrix": msgspec.to_builtins(found)}, indent=2))


if __name__ == "__main__":
    main()
