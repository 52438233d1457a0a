"""Parser of the command line: all commands with their flags and help texts."""

from __future__ import annotations

import argparse
from importlib.metadata import version
from typing import Any, Final

from app.commands.question_flags import add_questions, add_version
from app.config.flags import Flag, flags_of
from app.config.mistakes import default_at, written
from app.config.profile import RELEASES
from app.config.settings import Settings
from app.framework.handle import DEFAULT_RELEASE

FLAGS: Final = tuple(flags_of(Settings))
"""Flags of ``serve``, each of which sets one setting."""

_EPILOG: Final = """\
Every setting except the profiles has a flag. All settings can be set by environment variables HOMEPORT_<NAME> (lists
and mappings as JSON), and in the file given with --config. Flags take precedence over variables, and variables over
the file. Profiles are best written in the file:

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


class CommandParser(argparse.ArgumentParser):
    """Parser that reports an unknown flag of a subcommand with the usage of this subcommand."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments. An unknown argument ends the process with code 2."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown


def parser() -> argparse.ArgumentParser:
    """Create the parser. Parsed arguments have the command's name as ``run``, for example ``homes move``."""
    top = CommandParser(
        prog="homeport",
        description="A Kubernetes scheduler extender that spreads replicas and returns machines to their home nodes.",
    )
    top.add_argument("--version", action="version", version=version("homeport"), help="print the version and exit")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    _add_evaluate(commands)
    add_questions(commands, "homeport")
    _add_dump(commands)
    _add_rbac(commands)
    listing = commands.add_parser("plugins", help="list the plugins that a profile can name, and the presets")
    listing.set_defaults(run="plugins")
    add_version(commands)
    return top


def kubectl_parser() -> argparse.ArgumentParser:
    """Create the parser of ``kubectl homeport``: only ``version`` and the commands with questions about a cluster."""
    top = CommandParser(
        prog="kubectl homeport",
        description="Why does this pod wait? Ask the Homeport in the cluster, or judge in this process.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_questions(commands, "kubectl homeport")
    add_version(commands)
    return top


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="answer filter, prioritize, preempt and bind over HTTP",
        description="Answer kube-scheduler's extender calls: POST /filter, /prioritize, /preempt, /bind. "
        "Pages for operators are under /api/v1 and /docs; probes and metrics at /livez, /readyz and /metrics.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    for flag in FLAGS:
        _add_flag(parser, flag)
    parser.set_defaults(run="serve")


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="evaluate saved cases, one JSON object per line",
        description="Read cases, one JSON object per line: a cluster, a pending pod and a profile. Write the "
        "verdicts of the profile's plugins on every node, one line per case, in the same order. An invalid case "
        "gives an error line.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="file with the cases. Default: standard input.")
    parser.add_argument(
        "--release",
        choices=RELEASES,
        default=DEFAULT_RELEASE,
        help="Kubernetes release of the in-tree plugins, for cases without one. Default: %(default)s.",
    )
    parser.set_defaults(run="evaluate")


def _add_dump(commands: Any) -> None:
    parser = commands.add_parser(
        "dump",
        help="save a live cluster to a file",
        description="Write the objects of a live cluster to a file for --saved and serve --cluster. It contains only "
        "the fields that Homeport decodes: no Secrets, env, commands, user data or managedFields. The file has mode "
        "0600 and is replaced only after all objects are written.",
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="file to write, JSON")
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in FLAGS if it.name == "kubeconfig"))
    parser.set_defaults(run="dump")


def _add_rbac(commands: Any) -> None:
    parser = commands.add_parser(
        "rbac",
        help="print the minimal role for a configuration, and its bindings",
        description="Print the permissions that a configuration needs, each rule with its reason, for "
        "kubectl apply. Works without a cluster; unknown kinds are looked up if an API server can be reached.",
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML). Environment: HOMEPORT_CONFIG.")
    _add_flag(parser, next(it for it in FLAGS if it.name == "kubeconfig"))
    parser.add_argument(
        "-n", "--namespace", default="kube-system", help="namespace of the service account. Default: %(default)s."
    )
    parser.add_argument(
        "--service-account",
        metavar="NAME",
        default="homeport",
        help="service account; the roles have the same name. Default: %(default)s.",
    )
    parser.add_argument(
        "--user", metavar="NAME", default="", help="bind the roles to this user instead of a service account"
    )
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json"), default="yaml", help="output format. Default: yaml."
    )
    parser.set_defaults(run="rbac")


def _add_flag(parser: argparse.ArgumentParser, flag: Flag) -> None:
    default = (default_at(Settings, flag.place) or "").strip('"')
    variable = f"HOMEPORT_{flag.setting.upper()}" + (f'={{"{flag.place[1]}": …}}' if len(flag.place) > 1 else "")
    described = flag.info.description or f"{written(flag.place)} of the file."
    text = f"{described}{f' Default: {default}.' if default else ''} Environment: {variable}.".replace("%", "%%")
    metavar = flag.name.rpartition("-")[2].upper()
    if flag.switches:
        parser.add_argument(f"--{flag.name}", nargs="?", const="true", metavar="true|false", help=text)
    else:
        parser.add_argument(f"--{flag.name}", metavar=metavar, help=text)
