"""Run a backup or a restore in processes of their own, each of which is killed a step later than the one before.

Started as a program with one JSON argument. A step is a change in a folder, a connection or a program that starts; of
`every_s` also a span of time. After each process it prints one line, and continues when it reads one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from bot.services.backups.backup import back_up
from bot.services.backups.restore import restore
from tests.services.backups.deployments import PASSPHRASE, installation
from tests.support.clock import START

STEPS = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.chown", "sqlite3.connect", "subprocess.Popen"}


def main() -> None:
    """Play every kill until a process came to its end."""
    order = json.loads(sys.argv[1])
    for number in count(1):
        pid = os.fork()
        if pid == 0:
            _become(order, number)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"code": code}), flush=True)
        if not sys.stdin.readline() or code != -signal.SIGKILL:
            return


def _become(order: dict[str, Any], number: int) -> NoReturn:
    code = 1
    try:
        if every_s := order.get("every_s"):
            threading.Timer(every_s * number, os.kill, (os.getpid(), signal.SIGKILL)).start()
        else:
            _die_at(number)
        place = installation(order["url"], Path(order["folder"]))
        path, now = Path(order["path"]), START + timedelta(minutes=number)
        if order["do"] == "backup":
            asyncio.run(back_up(place, path, PASSPHRASE, now, "0.1.0"))
        else:
            asyncio.run(restore(place, path, PASSPHRASE, now))
        code = 0
    finally:
        os._exit(code)


def _die_at(number: int) -> None:
    """Kill this process right before its step of this number."""
    steps = count(1)

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in STEPS) and next(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(step)


if __name__ == "__main__":
    main()
