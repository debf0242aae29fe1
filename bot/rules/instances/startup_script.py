"""Write the script that a new machine starts with, which does what section 8 of its cloud's profile says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from bot.rules.instances.fetch_agent import start_agent

#: Logins read it, so that a person who connects has the variables that programs were started with.
PROFILE_FILE = "/etc/profile.d/gpu-shopper.sh"
#: Behind each step: its name, how it ended, and the seconds since the boot, for the agent to report.
STARTUP_FILE = "/opt/gpu-shopper/startup"
_STEP = (
    f"mkdir -p {STARTUP_FILE.rpartition('/')[0]} 2>/dev/null; true 2>/dev/null >{STARTUP_FILE}\n"
    f'step() {{ echo "$1 $? $(cut -d" " -f1 /proc/uptime)"; }} 2>/dev/null >>{STARTUP_FILE}'
)
#: A home directory belongs to its user, and so does what is made in it.
_MAKE = (
    'make() { case $1 in /home/*) u=${1#/home/}; runuser -u "${u%%/*}" -- mkdir -p "$1";; *) mkdir -p "$1";; esac; }'
)


def bootstrap(variables: Mapping[str, str], directories: Sequence[str], *, agent: bool = False) -> str:
    """Write the shell script. `variables` are no secrets: every user of the machine can read them.

    With `agent` it starts the machine's agent before anything else, in the background.

    No step depends on another: a machine on which one of them fails is still of use.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())

    def step(name: str, outcome: str = "") -> list[str]:
        return [f"{outcome}step {name}"] if agent else []

    lines = [
        *([start_agent(), _STEP] if agent else []),
        f"printf %s {shlex.quote(exports)} > {PROFILE_FILE}",
        f". {PROFILE_FILE}",
        *step("variables"),
        _MAKE,
        *(f"make {shlex.quote(path)} || failed=1" for path in directories),
        *step("directories", "(exit ${failed:-0}); "),
        '[ -z "$PROXY_HOOK" ] || [ ! -r "$PROXY_HOOK" ] || . "$PROXY_HOOK"',
        *step("proxy"),
    ]
    return "\n".join(lines) + "\n"
