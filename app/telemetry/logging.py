"""Sets up logs on standard error: one JSON object per line, or plain text for a terminal.

Homeport's own lines, lines of libraries, Python warnings and uncaught exceptions all have this form. Each line is one
write, so that ``standard_error`` can drop and count whole lines. Lines of libraries below the level warning are never
logged, because they can contain credentials.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from types import TracebackType
from typing import Final, Literal

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from app.telemetry.throttle import Throttle

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LOG: Final = structlog.get_logger(__name__)


def configure(level: str, form: Literal["json", "console"]) -> None:
    """Set up logging for the process. ``level``: lowest level of logged lines.

    ``form``: ``json``, or ``console`` for plain text.

    Homeport's own lines below ``level`` cost almost no time, because the logger's methods for them do nothing.
    """
    stamped: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendered: list[Processor] = (
        [structlog.processors.JSONRenderer()]
        if form == "json"
        else [_below, structlog.dev.ConsoleRenderer(colors=False)]
    )
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *stamped, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Repetitions())
    handler.setFormatter(
        ProcessorFormatter(
            processors=[ProcessorFormatter.remove_processors_meta, *rendered],
            foreign_pre_chain=[*stamped, structlog.stdlib.add_logger_name, _traceback, _held_back],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, _LEVELS[level]))
    logging.captureWarnings(True)
    sys.excepthook = _crashed
    sys.unraisablehook = _unraisable
    threading.excepthook = _thread_crashed


def silence(library: str) -> None:
    """Suppress all log lines of a library whose failures Homeport logs itself."""
    logging.getLogger(library).setLevel(logging.CRITICAL + 1)


class _Repetitions(logging.Filter):
    """Admits one line a minute for each place in the code of a library (see ``_place``).

    Clients can cause any number of these lines, and some contain a long traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._throttle = Throttle()

    def filter(self, record: logging.LogRecord) -> bool:
        held_back = self._throttle.admit(_place(record))
        record.held_back = held_back
        return held_back is not None


def _place(record: logging.LogRecord) -> str:
    """Return the throttle key of a log line: the line of code that raised its exception, or else logged it.

    For a Python warning, return the text of the warning.
    """
    if record.exc_info and record.exc_info[2] is not None:
        frame = traceback.extract_tb(record.exc_info[2])[-1]
        return f"{record.name} {frame.filename}:{frame.lineno}"
    return record.getMessage() if record.name == "py.warnings" else f"{record.name} {record.pathname}:{record.lineno}"


def _held_back(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add to a line the number of lines with its ``_place`` that were suppressed since the last logged one, if any."""
    if held_back := event["_record"].held_back:
        event["since_the_last_line"] = held_back
    return event


def _traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace ``exc_info`` with the field ``traceback``, which Homeport's own lines use too."""
    exc_info = event.pop("exc_info", None)
    if isinstance(exc_info, tuple) and exc_info[1] is not None:
        event["traceback"] = _text(exc_info[1])
    return event


def _below(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Rename ``traceback`` to ``exception``, because the console renderer prints that field below the line."""
    if "traceback" in event:
        event["exception"] = event.pop("traceback").rstrip()
    return event


def _text(fault: BaseException) -> str:
    return "".join(traceback.format_exception(fault))


def _crashed(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
    """Log an uncaught exception of the main thread. Python prints a ``KeyboardInterrupt`` and the like itself."""
    if issubclass(kind, Exception):
        _LOG.critical("crashed", where="main", traceback=_text(fault))
    else:
        sys.__excepthook__(kind, fault, trace)


def _thread_crashed(args: threading.ExceptHookArgs) -> None:
    where = args.thread.name if args.thread is not None else "a thread"
    if args.exc_value is not None and isinstance(args.exc_value, Exception):
        _LOG.critical("crashed", where=where, traceback=_text(args.exc_value))


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    if args.exc_value is not None:
        _LOG.critical("crashed", where=f"{args.err_msg or 'ignored'}: {args.object!r}", traceback=_text(args.exc_value))
