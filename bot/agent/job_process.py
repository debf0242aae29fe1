"""Start a command that outlives the agent, and control it: pause, resume and stop its whole process group.

A command has a folder with `state.json` and its output, `log`. A small runner of its own session starts it, waits for
it and writes how it ended, so neither a dropped connection nor a restart of the agent loses that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bot.agent.retry_policy import ONCE, RetryPolicy, shell_code

STATE_BYTES = 1 << 16
#: The file with the id of the command that somebody stopped.
STOPPED = "stopped"
#: How long a command that is asked to stop may take before it is killed.
GRACE_S = 20.0
#: What a shell answers for a program that does not exist or can't be run.
CANNOT_RUN = 127
#: The most bytes that a command's output keeps; what is older is in the file with `.1`, up to as much again.
LOG_BYTES = 64 << 20
#: How often the runner looks at the size of the output.
LOOK_S = 2.0
#: How long a command may take to stand still once it is paused.
PAUSE_S = 0.5


@dataclass(frozen=True)
class CommandState:
    """How far a command is. `exit_code` is None while it runs, and minus the signal's number if one ended it.

    `paused` is seen at the process itself, so that only the runner ever writes the file.
    """

    id: str
    argv: tuple[str, ...]
    pid: int
    #: The start time of the process in clock ticks since the boot: with the pid it names one process for ever.
    ticks: int
    started_at: str
    paused: bool = False
    exit_code: int | None = None
    ended_at: str | None = None
    #: Why it did not start; "" when it did.
    problem: str = ""
    #: The runner, which writes the exit code a moment after the process ended.
    runner_pid: int = 0
    runner_ticks: int = 0
    #: The number of this attempt; above 1 where the command failed before and was started again.
    attempt: int = 1

    @property
    def has_process(self) -> bool:
        """Whether its own process is there."""
        return self.pid > 1 and ticks_of(self.pid) == self.ticks

    @property
    def is_running(self) -> bool:
        """Whether it runs, or its end is being written. After a restart of the machine nothing runs."""
        if self.exit_code is not None:
            return False
        return self.has_process or (self.runner_pid > 1 and ticks_of(self.runner_pid) == self.runner_ticks)

    @property
    def word(self) -> str:
        """The state in one word: running, paused, done, failed, or lost when a restart of the machine ended it."""
        if self.exit_code is not None:
            return "done" if self.exit_code == 0 else "failed"
        if not self.is_running:
            return "lost"
        return "paused" if self.paused else "running"


@dataclass(frozen=True)
class CommandFolder:
    """Where one command's state and output lie. The session's job has `job`, with its output in `job.log`."""

    folder: Path
    log_name: str = "log"
    #: A second start with the same name starts nothing, even if the process that made the first one died meanwhile.
    once: bool = False

    @property
    def log(self) -> Path:
        """The file of its output."""
        return self.folder / self.log_name

    def read(self) -> CommandState | None:
        """Return its state; None if no command was started here, or the file is not the runner's."""
        try:
            said = json.loads(content(self.folder / "state.json", STATE_BYTES, os.geteuid()))
            known = {name: said[name] for name in CommandState.__dataclass_fields__ if name in said}
            numbers = [said["pid"], said["ticks"], said.get("runner_pid", 0), said.get("runner_ticks", 0)]
            if not all(type(one) is int for one in numbers):
                return None
            state = CommandState(**known | {"argv": tuple(map(str, said["argv"])), "paused": False})
            return replace(state, paused=state.exit_code is None and state.has_process and _is_stopped(state.pid))
        except (OSError, ValueError, RecursionError, TypeError, KeyError):
            return None

    def write(self, state: CommandState) -> None:
        """Write its state in one step."""
        write_json(self.folder / "state.json", state.__dict__)

    def start(
        self,
        name: str,
        argv: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        retry: RetryPolicy = ONCE,
        asks: Path | None = None,
    ) -> CommandState:
        """Start a command in a session of its own. Raises OSError if the runner can't be started.

        One that fails is started again as `retry` says, unless somebody stopped it or the file `asks` has `stop`.
        """
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        order: dict[str, Any] = {
            "folder": str(self.folder),
            "log": self.log_name,
            "id": name,
            "argv": list(argv),
            "cwd": str(cwd),
        }
        order |= {"retry": retry.to_json(), "asks": str(asks or ""), "once": self.once}
        runner = subprocess.run(
            [sys.executable, *own_program(), "run-command"],
            input=json.dumps(order | {"environment": dict(environment)}).encode(),
            stdout=subprocess.PIPE,
            check=False,
            start_new_session=True,
            timeout=GRACE_S,
        )
        if runner.returncode != 0:
            raise OSError(f"its runner ended with {runner.returncode}")
        state = self.read()
        if state is None or state.id != name:
            raise OSError("its runner wrote no state")
        return state

    def pause(self, state: CommandState) -> bool:
        """Freeze its processes; its memory, the GPUs' too, stays. False if it does not run."""
        done, end_s = self._signal(state, signal.SIGSTOP), time.monotonic() + PAUSE_S
        while done and state.has_process and not _is_stopped(state.pid) and time.monotonic() < end_s:
            time.sleep(0.005)
        return done

    def resume(self, state: CommandState) -> bool:
        """Let its processes run again. False if it does not run."""
        return self._signal(state, signal.SIGCONT)

    def stop(self, state: CommandState) -> bool:
        """Ask its processes to end. A paused one is resumed, because it could not react. False if it does not run."""
        self._end_for_good(state)
        is_asked = self._signal(state, signal.SIGTERM)
        self._signal(state, signal.SIGCONT)  # It may have ended already.
        return is_asked

    def kill(self, state: CommandState) -> bool:
        """End its processes at once. False if it does not run."""
        self._end_for_good(state)
        return self._signal(state, signal.SIGKILL)

    def is_ended_for_good(self, state: CommandState) -> bool:
        """Whether somebody stopped this command, so that it is not started again."""
        try:
            return content(self.folder / STOPPED, STATE_BYTES).decode(errors="replace") == state.id
        except OSError:
            return False

    def _end_for_good(self, state: CommandState) -> None:
        if state.exit_code is not None or not state.is_running:
            return
        with contextlib.suppress(OSError):  # On a full disk it may be started once more.
            (self.folder / STOPPED).write_text(state.id)

    def _signal(self, state: CommandState, number: signal.Signals) -> bool:
        if state.exit_code is not None or not state.has_process:
            return False
        try:
            os.killpg(state.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def own_program() -> list[str]:
    """Return what Python must run to be the agent again: the archive, or the package where there is none."""
    return [sys.argv[0]] if sys.argv[0].endswith(".pyz") else ["-m", "bot.agent"]


def ticks_of(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None if there is none (a zombie is none)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _is_stopped(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] == "T"


def content(path: Path, most: int, owner: int | None = None) -> bytes:
    """Read a small regular file, of this user where asked, and nothing that a link or a pipe leads to."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a file")
        if owner is not None and found.st_uid != owner:
            raise OSError("another user's file")
        return opened.read(most)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file in one step. A link at its name is replaced and not followed."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        json.dump(value, opened)
    new.replace(path)


def main(_arguments: list[str], /) -> int:
    """Run one command: read the order from standard input, start it, and leave a process that waits for its end."""
    order = json.load(sys.stdin)
    started, say = os.pipe()
    if os.fork():
        os.close(say)
        return 0 if os.read(started, 1) else 1
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)  # The program that started this one reads its output up to the end.
    place = CommandFolder(Path(order["folder"]), order["log"])
    if order["once"] and not _is_first(place, order["id"]):
        os.write(say, b"1")
        return 0
    output = _new_log(place.log)
    state, process = _begin(order, output)
    place.write(state)
    os.write(say, b"1")
    os.close(say)
    while process is not None:
        code = _wait(process, output, place.log)
        now = place.read()
        if now is not None and now.id != state.id:
            return 0
        if not _is_repeated(order, place, state, shell_code(code)):
            place.write(replace(state, exit_code=code, ended_at=_now()))
            return 0
        os.write(output, f"--- exit code {shell_code(code)}; attempt {state.attempt + 1} begins\n".encode())
        state, process = _begin(order, output, state.attempt + 1)
        place.write(state)
    return 0


def _is_first(place: CommandFolder, name: str) -> bool:
    """Whether no runner of this command is there or was; holds the command's lock for the life of this process."""
    lock = os.open(place.folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    known = place.read()
    return known is None or known.id != name


def _is_repeated(order: Mapping[str, Any], place: CommandFolder, state: CommandState, code: int) -> bool:
    """Whether the command that ended so is started again. A machine that is about to end starts nothing."""
    if not RetryPolicy.of(order["retry"]).repeats(state.attempt, code) or place.is_ended_for_good(state):
        return False
    try:
        return b"stop" not in content(Path(order["asks"] or os.devnull), STATE_BYTES).split()
    except OSError:
        return True


def _begin(
    order: Mapping[str, Any], output: int, attempt: int = 1
) -> tuple[CommandState, subprocess.Popen[bytes] | None]:
    argv = [str(one) for one in order["argv"]]
    try:
        process = subprocess.Popen(
            argv,
            cwd=order["cwd"],
            env={**os.environ, **order["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        os.write(output, f"{argv[0]} can't be started: {error}\n".encode())
        state = CommandState(order["id"], tuple(argv), 0, 0, _now(), False, CANNOT_RUN, _now(), str(error))
        return replace(state, attempt=attempt), None
    state = CommandState(order["id"], tuple(argv), process.pid, ticks_of(process.pid) or 0, _now(), attempt=attempt)
    return replace(state, runner_pid=os.getpid(), runner_ticks=ticks_of(os.getpid()) or 0), process


def _wait(process: subprocess.Popen[bytes], output: int, log: Path) -> int:
    """Wait for the end, and keep the output small enough meanwhile."""
    while True:
        try:
            return process.wait(LOOK_S)
        except subprocess.TimeoutExpired:  # noqa: PERF203 # Once in two seconds.
            with contextlib.suppress(OSError):  # A full disk is no reason to leave the command.
                _shorten(output, log)


def _shorten(output: int, log: Path) -> None:
    """Move what the log holds to the file with `.1` once it is too long. The command keeps writing to the same file."""
    size = os.fstat(output).st_size
    if size <= LOG_BYTES:
        return
    old = log.with_name(f"{log.name}.1")
    old.unlink(missing_ok=True)
    kept = os.open(old, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        at = max(size - LOG_BYTES, 0)
        while at < size and (sent := os.sendfile(kept, output, at, min(size - at, 1 << 20))):
            at += sent
    finally:
        os.close(kept)
        os.ftruncate(output, 0)


def time_text(at_s: float) -> str:
    """Write a time, given in seconds since 1970, with milliseconds: a command may take less than a second."""
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat(timespec="milliseconds")


def _now() -> str:
    return time_text(time.time())


def _new_log(path: Path) -> int:
    """Open a new file for the output; that of the command before it keeps its name with `.1`."""
    with contextlib.suppress(FileNotFoundError):
        path.rename(path.with_name(f"{path.name}.1"))
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
