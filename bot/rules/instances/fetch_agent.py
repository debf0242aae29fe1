"""The program that a new machine fetches and starts its agent with; it becomes the agent.

It is the standard library alone, and short, because some clouds limit a start script to 4,000 characters. It runs
beside the start script, which waits for nothing of it. Python of any age reads it, so that an old one can say so.
"""

from __future__ import annotations

import shlex

#: Prints what goes wrong to the agent's log, and tries for ever, ever more slowly.
_PROGRAM = """\
import hashlib, os, sys, time, urllib.request
if sys.version_info < (3, 10):
    sys.exit("No agent runs: python3 is %d.%d, and the agent needs 3.10 or later." % sys.version_info[:2])
url, wanted = os.environ["GPU_SHOPPER_AGENT_URL"], os.environ["GPU_SHOPPER_AGENT_SHA256"]
file, pause_s = os.path.abspath("agent.pyz"), 1
def is_right():
    return os.path.exists(file) and hashlib.sha256(open(file, "rb").read()).hexdigest() == wanted
while not is_right():
    try:
        call = urllib.request.Request(url, headers={"User-Agent": "gpu-shopper-agent/1"})
        with urllib.request.urlopen(call, timeout=60) as answer, open(file, "wb") as to:
            to.write(answer.read())
        print("The agent was fetched." if is_right() else "What was fetched has another SHA-256.", flush=True)
    except Exception as error:
        print("The agent was not fetched:", error, flush=True)
    if not is_right():
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 60)
if os.getpgrp() != os.getpid():
    os.setsid()
os.execv(sys.executable, [sys.executable, file])
"""
FOLDER = "/opt/gpu-shopper"
#: cloud-init runs what is here at every boot of a virtual machine; its start script runs at the first one only.
PER_BOOT = "/var/lib/cloud/scripts/per-boot/gpu-shopper-agent"


def start_agent() -> str:
    """Write the lines of shell that start the agent in the background; they wait for nothing and never fail.

    `env` has the variables of a virtual machine, which a later boot reads again.
    """
    at_boot = "#!/bin/sh\nagent=%s; . $agent/env; . $agent/agent.sh\n"
    return "\n".join(
        (
            f"agent={FOLDER}; mkdir -p $agent 2>/dev/null && [ -w $agent ] || agent=$(mktemp -d)",
            "cat >$agent/agent.sh <<'END_OF_AGENT'",
            "(cd $agent && exec >>agent.log 2>&1 </dev/null",
            'command -v python3 >/dev/null || { echo "No agent runs: there is no python3."; exit; }',
            f"exec python3 -c {shlex.quote(_PROGRAM)}) &",
            "END_OF_AGENT",
            ". $agent/agent.sh",
            f"b={PER_BOOT}",
            f"[ ! -r $agent/env ] || {{ printf {shlex.quote(at_boot)} $agent >$b; chmod 700 $b; }} 2>/dev/null",
        )
    )
