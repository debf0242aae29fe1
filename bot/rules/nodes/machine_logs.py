"""Say how the end of a log is read on a machine, and make its text safe to show."""

from __future__ import annotations

import codecs
import re
from enum import StrEnum
from typing import Final

from ledger.kernel.secret_shapes import without_keys, without_signatures

#: Lines that are shown when nobody says how many, and the most.
LINES, LINES_MAX = 50, 1000
#: What the command exits with when the machine has no such log.
NO_LOG: Final = 44
#: Bytes of a log that are read at most.
BYTES: Final = 60_000
#: Characters of a followed line after which it is shown without its end.
LINE_MAX: Final = 16_384
_CONTROL = re.compile(
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
#: Shapes of credentials that programs print: of this project, Hugging Face, GitHub, OpenAI, AWS, and Weights & Biases.
_SECRET = re.compile(
    r"\b(?:gpu[a-z]_[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}"
    r"|AKIA[A-Z0-9]{12,}|(?<=key=)[0-9a-f]{40}\b)",
    re.ASCII,
)


class LogSource(StrEnum):
    """Name the logs of a machine."""

    JOB = "job"
    STARTUP = "startup"
    AGENT = "agent"
    SERVE = "serve"

    @property
    def label(self) -> str:
        """Return what the log is about, as a sentence names it."""
        return {"job": "job", "startup": "start-up", "agent": "agent", "serve": "model server"}[self.value]


#: Where each log is: below the agent's folder, or where a cloud puts the output of the start script.
PLACES: Final = {
    LogSource.JOB: ("$d/job/job.log",),
    LogSource.STARTUP: ("$d/startup.log", "$d/start.log", "/tmp/onstart.log", "/var/log/onstart.log"),  # noqa: S108 # Read.
    LogSource.AGENT: ("$d/agent.log",),
    LogSource.SERVE: ("$d/serve/serve.log", "$d/serve.log"),
}
_FOLDER: Final = 'd="${GPU_SHOPPER_AGENT_FOLDER:-/opt/gpu-shopper/agent}"; d="${d%/agent}"'


def tail_command(source: LogSource, lines: int, *, follow: bool = False) -> str:
    """Return the shell command that prints the end of a log, and with `follow` what is added to it.

    Only a number and a fixed place go into it. To follow a log that is not there yet, `tail` waits for it.
    """
    names = " ".join(f'"{one}"' for one in PLACES[source])
    if follow:
        first = PLACES[source][0]
        seek = f'f="{first}"; for g in {names}; do [ -f "$g" ] && f="$g" && break; done'
        return f'{_FOLDER}; {seek}; exec tail -n {lines} -F -- "$f"'
    look = f'[ -f "$f" ] && [ -r "$f" ] && {{ tail -n {lines} -- "$f" | tail -c {BYTES}; exit 0; }}'
    return f"{_FOLDER}; for f in {names}; do {look}; done; exit {NO_LOG}"


class LineReader:
    """Cut what a followed log prints into whole lines that are safe to show.

    A line without an end is kept until it has one, or until it has `LINE_MAX` characters.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, piece: bytes) -> tuple[str, ...]:
        """Return the lines that end in `piece`."""
        whole, ends, self._rest = (self._rest + self._decoder.decode(piece)).rpartition("\n")
        if "\r" in self._rest:  # A progress bar overwrites its line, and only its last state is ever shown.
            self._rest = "\r" + self._rest.rstrip("\r").rpartition("\r")[2]
        if len(self._rest) > LINE_MAX:
            whole, ends, self._rest = f"{whole}{ends}{self._rest}", "\n", ""
        return shown(whole + ends)

    def rest(self) -> tuple[str, ...]:
        """Return what is left at the end."""
        return shown(self._rest)


def shown(text: str) -> tuple[str, ...]:
    """Return the lines of a log without what moves a cursor, changes direction, or looks like a credential.

    A progress bar overwrites its line with carriage returns; the last state of it is kept.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return tuple(_masked(_CONTROL.sub("", one.rstrip("\r").rpartition("\r")[2])) for one in lines)


def _masked(line: str) -> str:
    return without_signatures(without_keys(_SECRET.sub("…", line), "…"))
