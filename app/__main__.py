"""The command line. The only room that sees both ``app`` and ``plugins``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import version
from typing import Final

from app.cluster.saved import SavedClusterError
from app.config.settings import Settings, SettingsError, load_settings
from app.kube.credentials import CredentialsError
from app.main import serve
from app.runtime.guard import Guard
from app.runtime.profiles import ProfileErrors
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.telemetry.logging import configure
from app.telemetry.metrics import Metrics
from app.verbs.evaluate import Evaluator
from plugins import DEFAULT_WEIGHTS, IN_TREE

USAGE_ERROR: Final = 2
_FLAGS: Final = ("kubeconfig", "cluster", "host", "port", "http_timeout", "max_priority", "log_level", "log_format")

_EPILOG: Final = """\
every setting can come from the command line, from the environment as HOMEPORT_<NAME>, or from the file given
with --config, in this order of precedence. The file also holds the profiles:

  apiVersion: homeport.dev/v1alpha1
  kind: HomeportConfiguration
  httpTimeout: 5s
  profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled: [{name: PodTopologySpread, weight: 2}]

examples:
  homeport serve --cluster examples/sample-cluster.yaml      a saved cluster, no API server needed
  homeport serve --kubeconfig ~/.kube/config --port 8888     a live cluster
  homeport serve --config homeport.yaml                      in a pod, with its service account
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; 2 for wrong arguments, settings or profiles."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "version":
        print(version("homeport"))  # noqa: T201  # the answer of the command
        return 0
    if arguments.command == "evaluate":
        return _evaluate(arguments.file)
    try:
        settings = _settings(arguments)
        configure(settings.log_level, settings.log_format)
        serve(settings, IN_TREE, DEFAULT_WEIGHTS, version=version("homeport"))
    except (SettingsError, ProfileErrors, SavedClusterError, CredentialsError) as mistake:
        for line in str(mistake).splitlines():
            print(f"homeport: {line}", file=sys.stderr)  # noqa: T201  # for the person at the terminal
        return USAGE_ERROR
    return 0


def _evaluate(path: str | None) -> int:
    """Each verdict is written as soon as its case is read. Returns 1 if the file cannot be opened."""
    evaluator = Evaluator(Registry(IN_TREE, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    try:
        with open(path, "rb") if path else nullcontext(sys.stdin.buffer) as cases:  # noqa: PTH123  # may be a pipe
            for line in filter(bytes.strip, cases):
                sys.stdout.buffer.write(evaluator.evaluate(line) + b"\n")
                sys.stdout.buffer.flush()
    except OSError as error:
        print(f"homeport: {error}", file=sys.stderr)  # noqa: T201  # for the person at the terminal
        return 1
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    given = {name: value for name in _FLAGS if (value := getattr(arguments, name)) is not None}
    return load_settings(given, config=arguments.config or os.environ.get("HOMEPORT_CONFIG"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="homeport", description="A Kubernetes scheduler extender: replicas spread, machines come home."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("version", help="print the version")
    evaluating = commands.add_parser(
        "evaluate",
        help="judge saved cases, a JSON object a line",
        description="Read cases (a cluster, a pending pod, a profile), a JSON object a line, and write what the "
        "profile's plugins say about every node, a line each in the same order. A bad case gives an error line.",
    )
    evaluating.add_argument("file", nargs="?", metavar="FILE", help="read cases from here; default: standard input")
    serving = commands.add_parser(
        "serve",
        help="answer filter, prioritize, preempt and bind over HTTP",
        description="Answer kube-scheduler's extender calls: POST /filter, /prioritize, /preempt, /bind. "
        "Operator pages are under /api/v1 and /docs, health at /livez, /readyz and /metrics.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serving.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    for name in _FLAGS:
        _add_flag(serving, name)
    return parser


def _add_flag(parser: argparse.ArgumentParser, name: str) -> None:
    field = Settings.model_fields[name]
    default = "" if field.default is None else f" Default: {field.default}."
    parser.add_argument(
        f"--{name.replace('_', '-')}",
        metavar=name.rpartition("_")[2].upper(),
        help=f"{field.description}{default} Environment: HOMEPORT_{name.upper()}.".replace("%", "%%"),
    )


if __name__ == "__main__":
    sys.exit(main())
