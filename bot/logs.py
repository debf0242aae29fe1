"""Write structured logs to one stream: JSON or readable, with ids of the current work, and without secrets.

Every handler has the redaction, so a library's own handler cannot leak what ours would not. Redaction works on values
before they are rendered: exact registered secrets first, then everything with the format of a token.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from ledger.kernel.secret_shapes import REDACTED, without_keys, without_signatures

SHORTEST_SECRET = 6
MINUTE_S = 60.0

#: Secrets by what stands around them; `ledger.kernel.secret_shapes` has the keys and the signatures of addresses.
PATTERNS = (
    re.compile(r"(?i)(?<=\bbearer )[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL),
)
#: C0 and C1 controls, the line separators, and the bidi controls that make text read differently than it is.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

#: Libraries that log whole requests at INFO, or what is of no use to an operator.
LOUD = (
    "aiosqlite",
    "alembic",
    "apscheduler",
    "asyncio",
    "httpcore",
    "httpx",
    "slack_bolt",
    "slack_sdk",
    "sqlalchemy",
)

Fields = MutableMapping[str, Any]
_secrets: set[str] = set()


def register_secrets(values: Iterable[str]) -> None:
    """Redact these exact values from every log. Values below six characters are skipped: they match common words."""
    _secrets.update(value for value in values if len(value) >= SHORTEST_SECRET)


def redact(text: str) -> str:
    """Remove registered secrets from `text`, and anything that looks like a secret."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    for pattern in PATTERNS:
        text = pattern.sub(REDACTED, text)
    return without_signatures(without_keys(text))


def visible(text: str) -> str:
    """Write every control and bidi character of `text` as an escape, so that it cannot forge a line."""
    return _CONTROL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _clean(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(_clean(str(key))): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    return visible(redact(value if isinstance(value, str) else str(value)))


class Redaction(logging.Filter):
    """Clean a record in place: message, fields and traceback. Every handler has this filter."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the record and keep it: always true."""
        if getattr(record, "redacted", False):
            return True
        trouble: Any = record.exc_info
        if isinstance(record.msg, dict):
            given = record.msg.pop("exc_info", None)
            trouble = trouble or given
            record.msg = _clean(record.msg)
        else:
            record.msg = _clean(_message(record))
            record.args = ()
        # A plain formatter shows `exc_text`; ours takes the copy, because the library clears the original.
        record.trace = record.exc_text = _trace(trouble)
        record.exc_info = None
        if record.stack_info:
            record.stack_info = redact(record.stack_info)
        record.redacted = True
        return True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} {record.args!r}"


def _trace(trouble: Any) -> str | None:
    """Return the traceback of `exc_info` in any form that callers give; every line is marked and clean."""
    if trouble is True:
        trouble = sys.exc_info()
    if isinstance(trouble, BaseException):
        trouble = (type(trouble), trouble, trouble.__traceback__)
    if not trouble or trouble[0] is None:
        return None
    lines = redact("".join(traceback.format_exception(*trouble))).splitlines()
    # With a mark before each line a message inside the traceback cannot pass for a record of its own.
    return "\n".join(f"  | {visible(line)}" for line in lines)


def _take_traceback(_logger: Any, _name: str, event: Fields) -> Fields:
    """Move the traceback that the filter left on the record to a field."""
    if trace := getattr(event.get("_record"), "trace", None):
        event["exception"] = trace
    return event


def configure(*, level: str = "info", json: bool, stream: TextIO | None = None) -> None:
    """Send every logger of the process to one stream (standard error), structured and redacted. May be repeated."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    as_json: Processor = structlog.processors.JSONRenderer(ensure_ascii=False)
    renderer: Processor = as_json if json else _console
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    formatting = structlog.stdlib.ProcessorFormatter
    steps: list[Processor] = [_take_traceback, formatting.remove_processors_meta, _clean_all, renderer]
    handler.setFormatter(formatting(foreign_pre_chain=shared, processors=steps))
    root = logging.getLogger()
    for old in [h for h in root.handlers if getattr(h, "gpu_shopper", False)]:
        root.removeHandler(old)
    handler.gpu_shopper = True  # type: ignore[attr-defined] # A mark to find our own handler again.
    root.addHandler(handler)
    root.setLevel(level.upper())
    _quiet()
    guard_handlers()


def _quiet() -> None:
    """Raise the level of libraries that log whole requests, bodies included, to warnings."""
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.access", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING)
    # It warns of every request that is no HTTP, and anybody can send as many as they like.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def guard_handlers() -> None:
    """Attach the redaction to every handler that exists now, those of libraries included."""
    loggers = [logging.getLogger(), *(item for item in logging.root.manager.loggerDict.values())]
    for logger in loggers:
        for handler in getattr(logger, "handlers", []):
            if not any(isinstance(item, Redaction) for item in handler.filters):
                handler.addFilter(Redaction())


def _clean_all(_logger: Any, _name: str, event: Fields) -> Fields:
    """Clean the fields that were bound as context, because they arrive after the filter ran."""
    traceback_text = event.pop("exception", None)
    cleaned: dict[str, Any] = {str(key): _clean(value) for key, value in event.items()}
    if traceback_text is not None:
        cleaned["exception"] = traceback_text
    return cleaned


def _console(_logger: Any, _name: str, event: Fields) -> str:
    """Format a line as `12:00:01 warning requests  message  key=value`; a traceback follows on marked lines."""
    at, level, name = str(event.pop("timestamp", ""))[11:19], event.pop("level", ""), event.pop("logger", "")
    text, trace = event.pop("event", ""), event.pop("exception", None)
    rest = " ".join(f"{key}={value}" for key, value in event.items())
    line = f"{at} {level:<7} {name}  {text}" + (f"  {rest}" if rest else "")
    return f"{line}\n{trace}" if trace else line


class OncePerMinute:
    """Say whether a line may be logged that a caller without any key can cause: once a minute for each subject.

    `monotonic` gives seconds that never run backwards.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def may_log(self, subject: str) -> int | None:
        """Return how many lines were left out since the last one, or None when this one is to be left out, too."""
        now, last = self._monotonic(), self._logged_at.get(subject)
        if last is not None and now - last < MINUTE_S:
            self._left_out[subject] += 1
            return None
        self._logged_at[subject] = now
        return self._left_out.pop(subject, 0)


@contextmanager
def working_on(**ids: str) -> Iterator[None]:
    """Put ids (`request=`, `session=`, `cloud=`) on every line that is logged inside, in this task and its children."""
    with structlog.contextvars.bound_contextvars(**ids):
        yield
