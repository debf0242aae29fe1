"""Describe the programs that `gpu-shopper open` starts by name, and write the script that starts one on a machine.

They listen on the machine alone, so only a tunnel leads there. Jupyter asks for a token, which it reads from its
environment. TensorBoard has none, which is one more reason why no port leads to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

#: Seconds within which a program has to listen: JupyterLab takes a few on a busy machine.
STARTS_WITHIN_S: Final = 60


@dataclass(frozen=True, slots=True)
class NamedProgram:
    """A program that people name instead of its port: its words, and the page that opens it behind a token."""

    name: str
    port: int
    argv: tuple[str, ...]
    #: What `pip` installs it by.
    package: str
    page: str = "/"
    #: The variable from which it reads its token; empty where it has none.
    token_variable: str = ""

    def address(self, port: int, token: str) -> str:
        """Return where a browser on this computer opens it through a tunnel on `port`."""
        secret = f"?token={token}" if self.token_variable and token else ""
        return f"http://localhost:{port}{self.page}{secret}"


class Start(StrEnum):
    """Say what the script found or did."""

    STARTED = "started"
    OWN = "own"
    OTHER = "other"
    MISSING = "missing"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StartFound:
    """Hold what the script said, the token of the program that it started now or before, and the end of its log."""

    start: Start
    token: str = ""
    log: str = ""


#: Their own default ports.
NAMED_PROGRAMS: Final[Mapping[str, NamedProgram]] = MappingProxyType(
    {
        "jupyter": NamedProgram(
            "jupyter",
            8888,
            ("jupyter", "lab", "--no-browser", "--ip=127.0.0.1", "--port=8888", "--allow-root"),
            "jupyterlab",
            "/lab",
            "JUPYTER_TOKEN",
        ),
        "tensorboard": NamedProgram(
            "tensorboard", 6006, ("tensorboard", "--host=127.0.0.1", "--port=6006", "--logdir=."), "tensorboard"
        ),
    }
)
#: The token comes on standard input, so that no list of processes shows it. A token that was kept belongs to what
#: listens, as long as the process that this script started lives.
_SCRIPT: Final = """\
read -r token
umask 077
for one in /etc/profile.d/gpu-shopper.sh /opt/gpu-shopper/environment.sh; do [ ! -r "$one" ] || . "$one"; done
PATH=/opt/gpu-shopper/venv/bin:$PATH
kept="$HOME/.gpu-shopper/{name}"
mkdir -p "$kept"
listens() {{ bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null; }}
if listens; then
  [ -s "$kept/pid" ] && kill -0 "$(cat "$kept/pid")" 2>/dev/null || {{ echo other; exit; }}
  echo "own $(cat "$kept/token")"
  exit
fi
command -v {program} >/dev/null 2>&1 || {{ echo missing; exit; }}
printf %s "$token" >"$kept/token"
cd "${{PROJECT_REPO_DIR:-${{DATA_DIR:-$HOME}}}}" 2>/dev/null || cd
{variable}setsid nohup {words} >"$kept/log" 2>&1 </dev/null &
pid=$!
echo "$pid" >"$kept/pid"
waited=0
until listens; do
  if ! kill -0 "$pid" 2>/dev/null || [ "$waited" -ge {tenths} ]; then
    echo failed
    tail -n 5 "$kept/log"
    exit
  fi
  waited=$((waited + 1))
  sleep 0.1
done
echo "started $token"
"""


def start_script(program: NamedProgram) -> str:
    """Return the command that starts a program where nothing listens on its port, and leaves it running.

    Its token is read from standard input. It prints one line that `read_start` reads.
    """
    return _SCRIPT.format(
        name=program.name,
        port=program.port,
        program=program.argv[0],
        variable=f'{program.token_variable}="$token" ' if program.token_variable else "",
        words=shlex.join(program.argv),
        tenths=STARTS_WITHIN_S * 10,
    )


def read_start(output: str) -> StartFound:
    """Read what the script printed; what a login prints before is passed over."""
    lines = output.strip().splitlines()
    for place, line in enumerate(lines):
        word, _, token = line.partition(" ")
        if word in {one.value for one in Start}:
            return StartFound(Start(word), token, "\n".join(lines[place + 1 :]))
    return StartFound(Start.FAILED, log="\n".join(lines[-5:]))
