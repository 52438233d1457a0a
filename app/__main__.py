"""Command line of Homeport. Only this module of ``app`` imports ``plugins``."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import structlog

from app.commands import completion, dump, evaluate, in_process, lint, plugins, rbac, service, ui
from app.commands.answers import LastAnswer
from app.commands.arguments import FLAGS, kubectl_parser, parser
from app.commands.cluster_pages import names_at
from app.commands.output import printable, structured
from app.commands.progress import ProgressLine
from app.commands.question_flags import with_list
from app.commands.questions import QUESTIONS, Ask, Question
from app.commands.sources import source_of
from app.config.flags import given_by
from app.config.loading import LoadedSettings, SettingsError, read_settings
from app.config.mistakes import Mistake
from app.config.variables import CONFIG
from app.feeds.saved import SavedClusterError
from app.framework.spec import PluginSpec
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Login, load
from app.main import serve
from app.runtime.profiles import ProfileErrors
from app.runtime.registry import DuplicatePlugin, Registry
from app.runtime.resolving import resolve
from app.server.tls import CertificateError
from app.telemetry.logging import configure
from app.telemetry.standard_error import guard_standard_error
from app.telemetry.tracing import EXTRA, is_available
from app.wiring import certificates_of
from plugins import DEFAULT_WEIGHTS, SHIPPED

_LOG: Final = structlog.get_logger(__name__)
USAGE_ERROR: Final = 2
FAILED: Final = 3
INTERRUPTED: Final = 130
_MISTAKES: Final = (
    SettingsError,
    ProfileErrors,
    SavedClusterError,
    CertificateError,
    service.UsageError,
    plugins.PluginLoadError,
    DuplicatePlugin,
)
_CERTIFICATES: Final = ("tls_cert_file", "tls_private_key_file", "client_ca_file", "leader_election")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    The exit code is 0 after success. It is 1 if lint has findings, and for unwanted answers (see
    ``app.commands.questions``). It is 2 for invalid arguments or input, such as settings, profiles or plugins. It is 3
    if there is no answer or only a part of it, and 130 after Ctrl-C during a question. If standard output is a pipe
    without a reader, the process ends by SIGPIPE, like other Unix commands.
    """
    return _guarded(lambda: _run(parser(), list(sys.argv[1:] if argv is None else argv), nearby=service.SERVERS))


def kubectl(argv: Sequence[str] | None = None) -> int:
    """Run one command of ``kubectl homeport`` and return the exit code, as ``main`` does."""
    return _guarded(lambda: _run(kubectl_parser(), list(sys.argv[1:] if argv is None else argv), nearby=()))


def kubectl_complete(argv: Sequence[str] | None = None) -> int:
    """Print completions of ``kubectl homeport``, one a line, and a directive for kubectl's shell scripts."""
    with completion.time_limit():
        words = completion.completions(list(sys.argv[1:] if argv is None else argv), names_at)
    print("\n".join(words))  # noqa: T201  # for kubectl
    return 0


def _guarded(run: Callable[[], int]) -> int:
    guard_standard_error()
    try:
        return run()
    finally:
        _flush()


def _run(known: argparse.ArgumentParser, argv: list[str], *, nearby: Sequence[str]) -> int:
    arguments = known.parse_args(with_list(argv))
    try:
        if arguments.run == "ui" or arguments.run in _QUESTIONS:
            return _questioned(arguments, nearby)
        _RUNS[arguments.run](arguments)
    except _MISTAKES as mistake:
        _complain(mistake)
        return USAGE_ERROR
    except BrokenPipeError as failure:
        if not _has_no_reader(sys.stdout.fileno()):
            _complain(failure)
            return FAILED
    except (service.CommandError, CredentialsError, OSError) as failure:
        _complain(failure)
        if isinstance(failure, service.PageNotServed):
            _complain(service.CommandError(service.WHERE))
        return FAILED
    else:
        return 0
    _end_by_sigpipe()  # called here, where nothing refers to a port-forward any more, so the port-forward has ended
    return FAILED


def _questioned(arguments: argparse.Namespace, nearby: Sequence[str]) -> int:
    """Run ``ui`` or a question, and return the exit code.

    It is ``INTERRUPTED`` after Ctrl-C, which ends for example ``--watch``. Raises ``CredentialsError``, and the
    exceptions of the command.
    """
    try:
        if arguments.run == "ui":
            return ui.run(arguments, nearby)
        return _QUESTIONS[arguments.run](arguments, _ask(arguments, nearby=nearby))
    except KeyboardInterrupt:
        return INTERRUPTED


def _answered(question: Question, arguments: argparse.Namespace, ask: Ask) -> int:
    """Run a question. Raises ``CommandError`` if a remote Homeport of another version gives an answer that the question
    cannot read.
    """
    sources: list[LastAnswer] = []

    def recorded() -> service.Pages:
        pages = ask()
        if isinstance(pages, in_process.InProcess):
            return pages
        sources.append(LastAnswer(pages))
        return sources[-1]

    try:
        return question(arguments, recorded)
    except (LookupError, TypeError, AttributeError) as failure:
        if not sources or sources[-1].is_of_this_version():
            raise  # a fault in this program
        raise service.CommandError(service.OTHER_VERSION) from failure


def _lint(arguments: argparse.Namespace, _: Ask) -> int:
    return lint.run(arguments, Registry(_specs(), DEFAULT_WEIGHTS), version=version("homeport"))


def _flush() -> None:
    """Flush standard output. If it is a pipe without a reader, end the process by SIGPIPE.

    Python starts without ``sys.stdout`` if the file descriptor is closed.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_by_sigpipe()


def _end_by_sigpipe() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)


def _has_no_reader(pipe: int) -> bool:
    """Return true if the file descriptor is a pipe whose reading end is closed."""
    poll = select.poll()
    poll.register(pipe, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _complain(error: Exception) -> None:
    for line in str(error).splitlines():
        print(f"homeport: {printable(line)}", file=sys.stderr)  # noqa: T201  # for the person at the terminal


def _specs() -> tuple[PluginSpec[Any], ...]:
    """Return the plugins that Homeport ships, and those of other installed distributions."""
    return (*SHIPPED, *plugins.installed())


def _serve(arguments: argparse.Namespace) -> None:
    given = given_by(FLAGS, {name.replace("_", "-"): value for name, value in vars(arguments).items()})
    loaded = read_settings(given, config=arguments.config or os.environ.get(CONFIG))
    specs = _specs()
    _raise_for(loaded, _deeper_mistakes(loaded, specs))
    configure(loaded.settings.log_level, loaded.settings.log_format)
    if loaded.sources.variables.links:
        _LOG.info("service links ignored", variables=loaded.sources.variables.links)
    try:
        serve(loaded.settings, specs, DEFAULT_WEIGHTS, version=version("homeport"))
    except ProfileErrors as error:
        raise SettingsError("\n".join(map(loaded.sources.sentence, error.mistakes))) from error


def _raise_for(loaded: LoadedSettings, deeper: Iterable[str]) -> None:
    """Raise ``SettingsError`` if ``loaded`` has mistakes or ``deeper`` has messages about further mistakes."""
    sentences = [*map(loaded.sources.sentence, loaded.mistakes), *deeper]
    if sentences:
        raise SettingsError("\n".join(sentences))


def _profile_mistakes(loaded: LoadedSettings, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Yield a message for each mistake in the profiles that is found only when the profiles are resolved.

    Examples are unknown plugin names and invalid plugin arguments. Mistakes that follow from other mistakes are left
    out.
    """
    try:
        resolve(loaded.settings.profiles, Registry(specs, DEFAULT_WEIGHTS))
    except ProfileErrors as error:
        yield from loaded.further(error.mistakes)


def _deeper_mistakes(loaded: LoadedSettings, specs: Sequence[PluginSpec[Any]]) -> Iterator[str]:
    """Yield a message for each mistake that the validation of single settings does not find.

    Such mistakes are in profiles, certificates, tracing or the kubeconfig. All are collected here, because the service
    would stop at the first one.
    """
    yield from _profile_mistakes(loaded, specs)
    if all(map(loaded.is_sound, _CERTIFICATES)):
        try:
            certificates_of(loaded.settings)
        except CertificateError as mistake:
            yield loaded.sources.sentence(Mistake((("tlsCertFile",),), str(mistake)))
    if loaded.is_sound("tracing") and loaded.settings.tracing.endpoint is not None and not is_available():
        said = f"needs OpenTelemetry's SDK and exporter: {EXTRA}"
        yield loaded.sources.sentence(Mistake((("tracing", "endpoint"),), said))
    if loaded.settings.cluster is None and loaded.is_sound("cluster") and loaded.is_sound("kubeconfig"):
        try:
            load(loaded.settings.kubeconfig)
        except CredentialsError as mistakes:
            places = ((("kubeconfig",),)) if loaded.settings.kubeconfig is not None else ()
            yield loaded.sources.sentence(Mistake(places, str(mistakes)))


def _evaluate(arguments: argparse.Namespace) -> None:
    configure("warning", "json")
    evaluate.run(arguments.file, _specs(), arguments.release)


def _ask(arguments: argparse.Namespace, *, nearby: Sequence[str]) -> Callable[[], service.Pages]:
    """Return a function that chooses the source of the answer and returns its pages, see ``source_of``."""

    def settings() -> tuple[LoadedSettings, tuple[PluginSpec[Any], ...]]:
        configure("warning", "console")
        return _configured(arguments.config, None)

    def of_file(path: str) -> service.Pages:
        loaded, specs = settings()
        progress = ProgressLine(quiet=arguments.quiet)
        return in_process.of_file(
            loaded.settings, specs, DEFAULT_WEIGHTS, Path(path), progress, version=version("homeport")
        )

    def of_cluster(login: Login, progress: ProgressLine) -> service.Pages:
        loaded, specs = settings()
        return in_process.of_cluster(
            loaded.settings, specs, DEFAULT_WEIGHTS, login, progress, version=version("homeport")
        )

    return lambda: source_of(arguments, of_file, of_cluster, nearby=nearby)


def _plugins(_arguments: argparse.Namespace) -> None:
    print(plugins.listing(SHIPPED, plugins.installed(), DEFAULT_WEIGHTS))  # noqa: T201  # the answer of the command


def _configured(config: str | None, kubeconfig: str | None) -> tuple[LoadedSettings, tuple[PluginSpec[Any], ...]]:
    """Load settings and plugins for a command other than ``serve``.

    Raises ``SettingsError`` for mistakes in settings or profiles, and ``PluginLoadError`` or ``DuplicatePlugin``.
    """
    loaded, specs = read_settings(rbac.given(kubeconfig), config=config or os.environ.get(CONFIG)), _specs()
    _raise_for(loaded, _profile_mistakes(loaded, specs))
    return loaded, specs


def _dump(arguments: argparse.Namespace) -> None:
    configure("warning", "console")
    loaded, specs = _configured(arguments.config, arguments.kubeconfig)
    print(dump.run(loaded.settings, specs, DEFAULT_WEIGHTS, Path(arguments.output)))  # noqa: T201  # the answer


def _rbac(arguments: argparse.Namespace) -> None:
    configure("warning", "console")
    account = rbac.Account(arguments.namespace, arguments.service_account, arguments.user)
    loaded, specs = _configured(arguments.config, arguments.kubeconfig)
    print(rbac.run(loaded.settings, specs, DEFAULT_WEIGHTS, account, arguments.output), end="")  # noqa: T201  # the answer


def _version(arguments: argparse.Namespace) -> None:
    text = structured({"version": version("homeport")}, arguments.output)
    print(version("homeport") if text is None else text)  # noqa: T201  # the answer of the command


_RUNS: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "serve": _serve,
    "evaluate": _evaluate,
    "plugins": _plugins,
    "version": _version,
    "dump": _dump,
    "rbac": _rbac,
}
"""Function of each command that returns no exit code, by the command's name.

``commands.arguments.parser`` stores this name as ``run``.
"""

_QUESTIONS: Final[Mapping[str, Question]] = {
    "lint": _lint,
    **{name: partial(_answered, question) for name, question in QUESTIONS.items()},
}
"""Function of each command except ``ui`` that returns an exit code, by the command's name."""


if __name__ == "__main__":
    sys.exit(main())
