"""Write the script that a new machine starts with, which does what section 8 of its cloud's profile says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from bot.rules.instances.fetch_agent import start_agent

#: Logins read it, so that a person who connects has the variables that programs were started with.
PROFILE_FILE = "/etc/profile.d/gpu-shopper.sh"
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
    lines = [
        *([start_agent()] if agent else []),
        f"printf %s {shlex.quote(exports)} > {PROFILE_FILE}",
        f". {PROFILE_FILE}",
        _MAKE,
        *(f"make {shlex.quote(path)}" for path in directories),
        '[ -z "$PROXY_HOOK" ] || [ ! -r "$PROXY_HOOK" ] || . "$PROXY_HOOK"',
    ]
    return "\n".join(lines) + "\n"
