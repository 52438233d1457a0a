"""Logs: one JSON object a line on standard error, or plain text for a person at a terminal.

Whoever speaks, the form is the same: our own events, the lines of libraries, warnings, and what nobody caught.
Libraries are heard from warning up, whatever the level: their debug lines may show credentials.
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

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_LOG: Final = structlog.get_logger(__name__)


def configure(level: str, form: Literal["json", "console"]) -> None:
    """Set up logging for the process. Our lines below ``level`` cost one comparison."""
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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ProcessorFormatter(
            processors=[ProcessorFormatter.remove_processors_meta, *rendered],
            foreign_pre_chain=[*stamped, structlog.stdlib.add_logger_name, _traceback],
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
    """Hear nothing of a library: what there is to say, its caller says."""
    logging.getLogger(library).setLevel(logging.CRITICAL + 1)


def _traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """In the field that our own events have it in."""
    found = event.pop("exc_info", None)
    if isinstance(found, tuple) and found[1] is not None:
        event["traceback"] = _text(found[1])
    return event


def _below(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A person reads a traceback below its line."""
    if "traceback" in event:
        event["exception"] = event.pop("traceback").rstrip()
    return event


def _text(fault: BaseException) -> str:
    return "".join(traceback.format_exception(fault))


def _crashed(kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
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
