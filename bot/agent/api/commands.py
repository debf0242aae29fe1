"""Start, pause, resume, save and stop commands: words without a shell, and the same call twice does it once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bot.agent.api.problems import ApiRefusal
from bot.agent.api.workspace import AgentWorkspace, names_of
from bot.agent.job_files import JobFiles
from bot.agent.job_process import GRACE_S, CommandFolder, CommandState, content, write_json
from bot.wire.codec import to_json
from bot.wire.node_api import CommandBody, CommandReport

MOST_WORDS, WORD_CHARACTERS, ALL_CHARACTERS = 256, 16_384, 65_536
MOST_VARIABLES, MOST_RUNNING, MOST_KEPT = 64, 16, 1000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_FIELDS = {each.name for each in fields(CommandBody)}
_EXAMPLE = '{"id": "train-1", "command": "start", "argv": ["python", "train.py"], "job": true}'


@dataclass
class Commands:
    """The commands of this machine; `folder` is the agent's."""

    folder: Path
    workspace: AgentWorkspace
    _stopping: set[asyncio.Task[None]] = field(default_factory=set)
    #: Starts come one after the other, so that the same call twice at once does it once.
    _one_start: threading.Lock = field(default_factory=threading.Lock, repr=False)

    async def do(self, body: Mapping[str, Any]) -> CommandReport:
        """Do one call's command and return the state of what it names. Raises ApiRefusal."""
        name, command = body.get("id"), body.get("command")
        if not isinstance(name, str) or not _ID.fullmatch(name):
            raise ApiRefusal(400, "id must be a name that you choose, of letters, digits, _ and -, such as train-1.")
        if command == "start":
            return await asyncio.to_thread(self._start, name, body)
        if command not in ("pause", "resume", "save", "stop"):
            raise ApiRefusal(400, f"command must be start, pause, resume, save or stop, such as in {_EXAMPLE}.")
        place, state = self._known(name)
        if command == "save":
            JobFiles(self.folder).add_ask("save")
        elif not state.is_running:
            raise ApiRefusal(409, f"{name} does not run any more.", state=to_json(shown(state)))
        elif command == "pause":
            await asyncio.to_thread(place.pause, state)
        elif command == "resume":
            place.resume(state)
        elif place.stop(state):
            task = asyncio.create_task(_kill_later(place, state))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        return shown(place.read() or state)

    def job(self) -> CommandState | None:
        """Return the state of the session's job, if it was started as one."""
        return CommandFolder(self.folder / "job", "job.log").read()

    def place(self, name: str) -> CommandFolder:
        """Return where a command's state and output lie. Raises ApiRefusal (404) if it was never started."""
        return self._known(name)[0]

    def _known(self, name: str) -> tuple[CommandFolder, CommandState]:
        found = self._find(name)
        if found is None:
            raise ApiRefusal(404, f"No command {name} was started here.")
        return found

    def _find(self, name: str) -> tuple[CommandFolder, CommandState] | None:
        for place in (CommandFolder(self.folder / "commands" / name), CommandFolder(self.folder / "job", "job.log")):
            state = place.read()
            if state is not None and state.id == name:
                return place, state
        return None

    def _start(self, name: str, body: Mapping[str, Any]) -> CommandReport:
        order = _checked(body)
        with self._one_start:
            before = _order_in(self.folder / "commands" / name)
            if before is not None and before != order:
                raise ApiRefusal(409, f"{name} was started with other words. Choose another id for another command.")
            # Without a state the machine went down before it began, so it begins now.
            state = self._find(name) if before is not None else None
            return shown(state[1] if state is not None else self._begin(name, order))

    def _begin(self, name: str, order: Mapping[str, Any]) -> CommandState:
        kept, job = self.folder / "commands" / name, self.job()
        if order["job"] and job is not None and job.is_running:
            raise ApiRefusal(409, f"The job {job.id} runs. Stop it first, or start a command without job.", job=job.id)
        self._check_room()
        self.workspace.prepare()
        place = CommandFolder(self.folder / "job", "job.log") if order["job"] else CommandFolder(kept)
        try:
            with self.workspace.folder(names_of(order["cwd"]) if order["cwd"] else []) as folder:
                cwd = Path(f"/proc/self/fd/{folder}").readlink()
        except OSError as error:
            raise ApiRefusal(404, f"The workspace has no folder {order['cwd']}: {error.strerror}.") from None
        kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(kept / "order.json", order)
        earlier = self.folder / "commands" / job.id if order["job"] and job is not None else None
        if earlier is not None and job is not None and job.id != name and earlier.is_dir():
            CommandFolder(earlier).write(job)  # The job's own folder holds only the newest one.
        try:
            return place.start(name, order["argv"], cwd, self._software() | order["env"])
        except (OSError, subprocess.SubprocessError) as error:
            raise ApiRefusal(503, f"The machine can't start a process now: {error}.", {"Retry-After": "10"}) from None

    def _software(self) -> dict[str, str]:
        """Return the variables that put the installed software first, where there is some."""
        programs = self.folder / "venv/bin"
        return {"PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}"} if programs.is_dir() else {}

    def _check_room(self) -> None:
        folders = list((self.folder / "commands").glob("*/state.json"))
        states = [state for one in folders if (state := CommandFolder(one.parent).read())]
        if sum(one.is_running for one in states) >= MOST_RUNNING:
            raise ApiRefusal(429, f"{MOST_RUNNING} commands run already. Stop one first.", {"Retry-After": "30"})
        if len(folders) >= MOST_KEPT:
            raise ApiRefusal(429, f"{MOST_KEPT} commands were started. Delete the oldest in {self.folder}/commands.")


def _order_in(kept: Path) -> dict[str, Any] | None:
    """Return what was started under a name; None if nothing was."""
    try:
        found = json.loads(content(kept / "order.json", 8 * ALL_CHARACTERS))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def shown(state: CommandState) -> CommandReport:
    """Return what a caller sees of a command."""
    code, began_at, ended_at = state.exit_code, state.started_at, state.ended_at
    return CommandReport(state.id, state.argv, state.word, code, began_at, ended_at, state.problem)


async def _kill_later(place: CommandFolder, state: CommandState) -> None:
    await asyncio.sleep(GRACE_S)
    place.kill(state)


def _checked(body: Mapping[str, Any]) -> dict[str, Any]:
    if extra := sorted(set(body) - _FIELDS):
        raise ApiRefusal(400, f"{extra[0][:40]} is no field of a command; those are {', '.join(sorted(_FIELDS))}.")
    argv, environment, cwd, job = (body.get(one) for one in ("argv", "env", "cwd", "job"))
    if not isinstance(argv, list) or not 1 <= len(argv) <= MOST_WORDS or not all(map(_is_word, argv)) or not argv[0]:
        raise ApiRefusal(400, f"argv must be 1 to {MOST_WORDS} words, the program first, such as in {_EXAMPLE}.")
    environment = {} if environment is None else environment
    if not isinstance(environment, dict) or len(environment) > MOST_VARIABLES:
        raise ApiRefusal(400, f'env must be an object of at most {MOST_VARIABLES} variables, such as {{"SEED": "1"}}.')
    for one, value in environment.items():
        if not _VARIABLE.fullmatch(one) or not _is_word(value):
            raise ApiRefusal(400, 'env must have names of letters, digits and _, and texts, such as {"SEED": "1"}.')
    if sum(map(len, [*argv, *environment.values()])) > ALL_CHARACTERS:
        raise ApiRefusal(413, f"argv and env have more than {ALL_CHARACTERS} characters. Upload a script.")
    if cwd is not None and not isinstance(cwd, str):
        raise ApiRefusal(400, "cwd must name a folder inside the workspace, such as runs/1.")
    if cwd:
        names_of(cwd)
    if job not in (None, True, False):
        raise ApiRefusal(400, "job must be true or false. The end of a job is the end of the session's work.")
    return {"argv": argv, "env": environment, "cwd": cwd or "", "job": bool(job)}


def _is_word(value: object) -> bool:
    if not isinstance(value, str) or len(value) > WORD_CHARACTERS or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
