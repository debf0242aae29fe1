"""Make the plan of a machine's start-up from its job: which steps its agent runs, in which order.

The agent receives it in the answer to a check-in. Each step can run again without harm.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.serve import SERVE_LIMIT_S, model_server
from bot.rules.nodes.machine_report import RUN, SERVE
from bot.rules.nodes.mount_steps import FILES, FILES_LIMIT_S, files_script
from bot.rules.nodes.resume_steps import (
    CHECKPOINT_STEP,
    READS_RESUME,
    START_SCRIPT,
    START_STEP,
    WAIT_LIMIT_S,
    fetch_script,
)
from bot.rules.nodes.stack_scripts import (
    DRIVER,
    DRIVER_LIMIT_S,
    PYTHON_PACKAGES,
    PYTHON_PACKAGES_LIMIT_S,
    driver_script,
    exports,
    in_stack,
    python_packages_script,
)
from bot.rules.stacks.stack import STACKS, Stack
from bot.rules.values.mounts import mounts_of
from bot.rules.values.repository import Repository
from bot.wire.queue import PlannedQueue
from bot.wire.startup_plan import LEFT_OUT, PlannedStep, StartupPlan

#: What people expect on a machine, installed where the image lacks it.
PACKAGES = ("git", "wget", "curl", "vim", "htop", "tmux")
#: The most seconds of a step. Another program may hold the lock of apt, right after the first boot above all.
PACKAGES_LIMIT_S, LOCK_WAIT_S, REPO_LIMIT_S, ENVIRONMENT_LIMIT_S, RUN_LIMIT_S = 900, 300, 900, 30, 60

#: `environment.sh` is read by logins. STARTUP_FOLDER is the agent's folder.
_ENVIRONMENT = """\
set -e
printf %s {exports} >"$STARTUP_FOLDER/environment.sh"
logins=${{LOGINS:-/etc/profile.d}}
if [ -w "$logins" ]; then
  printf '. %s\\n' "$STARTUP_FOLDER/environment.sh" >"$logins/gpu-shopper-job.sh"
else
  echo "Logins don't read $STARTUP_FOLDER/environment.sh: $logins can't be written."
fi
"""
#: The agent knows where the secrets are. Logins read this after the start script's own file, which may name another.
_CRED_FILE = """\
said="export CRED_FILE='$CRED_FILE'"
printf '%s\\n' "$said" >>"$STARTUP_FOLDER/environment.sh"
[ ! -w "$logins" ] || printf '%s\\n' "$said" >"$logins/z-gpu-shopper-secrets.sh"
"""
#: Before a command that gets secrets.
_READS_SECRETS = '. "$CRED_FILE" || exit\n'
_PACKAGES = """\
missing=
for one in {packages}; do command -v "$one" >/dev/null 2>&1 || missing="$missing $one"; done
[ -n "$missing" ] || {{ echo "Nothing is missing."; exit 0; }}
echo "Missing:$missing"
command -v apt-get >/dev/null 2>&1 || {{ echo "This image has no apt-get, so nothing is installed."; exit {left_out}; }}
[ "$(id -u)" = 0 ] || {{ echo "Only root can install packages, so nothing is installed."; exit {left_out}; }}
export DEBIAN_FRONTEND=noninteractive
waited_s=0
try() {{
  while :; do
    said=$("$@" 2>&1); code=$?
    printf '%s\\n' "$said"
    [ $code -ne 0 ] || return 0
    case $said in *"ould not get lock"*) ;; *) return $code;; esac
    [ $waited_s -lt {lock_wait_s} ] || {{ echo "Another program held the lock for {lock_wait_s} s."; return $code; }}
    echo "Another program installs packages; this waits."
    sleep 10
    waited_s=$((waited_s + 10))
  done
}}
try apt-get update || exit
try apt-get install -y --no-install-recommends $missing
"""
_REPO = """\
set -e
command -v git >/dev/null 2>&1 || {{ echo "git is missing, so the repository can't be fetched."; exit 127; }}
export GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=${{GIT_ALLOW_PROTOCOL:-https}}
git init -q {folder}
cd {folder}
git fetch --depth 1 -- {url} {ref}
git checkout -q --detach FETCH_HEAD
git log -1 --format='%H %s'
"""
#: The script of a queue's command. An agent that runs no queue leaves the variable out, and the script fails.
_EACH = 'eval "${QUEUE_COMMAND?This agent runs no queue.}"'


def queue_left(commands: Sequence[str], gpus: int, over: Collection[int] = (), failed: int = 0) -> PlannedQueue:
    """Return a queue without the commands whose numbers are `over`: an earlier machine of the session ran them."""
    left = tuple((number, one) for number, one in enumerate(commands, 1) if number not in over)
    return PlannedQueue(left, gpus, len(over) - failed, failed)


def plan_startup(
    instance_id: str,
    job: JobRequest,
    places: Mapping[str, str],
    queue: PlannedQueue | None = None,
    resume: Mapping[str, str] | None = None,
    *,
    waits: bool = False,
) -> StartupPlan | None:
    """Plan the start-up of an instance; None where its job names no repository, command, software or secret.

    `places` are the variables of its cloud's profile, such as DATA_DIR. `queue` is what is left of the job's queue, and
    `resume` the variables that name the checkpoint from which the work continues. `waits`: its run comes from another
    machine, so it waits for that one's last save, and until it may start.
    """
    runs = job.run is not None or bool(job.queue)
    mounts = mounts_of(job.mounts)
    if not any((job.repo, runs, job.install, job.secrets, resume, mounts)):
        return None
    if job.queue and queue is None:
        queue = queue_left(job.queue, job.gpu.count_min)
    stack = STACKS.get(job.install or "")
    environment, repo = {**places, **(resume or {})}, Repository.read(job.repo) if job.repo else None
    if repo is not None:
        environment["PROJECT_REPO_DIR"] = f"{places.get('DATA_DIR') or '/root'}/{repo.name}"
    if job.secrets:  # Then its agent says where they are; without any, a cloud may have a file of its launch.
        environment.pop("CRED_FILE", None)
    variables = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items())
    script = _environment(variables, stack) + (_CRED_FILE if job.secrets else "")
    steps = [PlannedStep("environment", script, ENVIRONMENT_LIMIT_S)]
    if repo is not None or runs or job.install is not None:
        packages = _PACKAGES.format(packages=" ".join(PACKAGES), left_out=LEFT_OUT, lock_wait_s=LOCK_WAIT_S)
        steps.append(PlannedStep("packages", packages, PACKAGES_LIMIT_S))
    if job.install is not None:
        steps += _stack_steps(job.install)
    if repo is not None:
        folder, url, ref = map(shlex.quote, (environment["PROJECT_REPO_DIR"], repo.url, repo.ref or "HEAD"))
        steps.append(PlannedStep("repo", _REPO.format(folder=folder, url=url, ref=ref), REPO_LIMIT_S))
    if mounts:
        files = files_script(mounts, _READS_SECRETS if job.secrets else "")
        steps.append(PlannedStep(FILES, files, FILES_LIMIT_S, secrets=job.secrets))
    if runs:
        steps += _waiting_steps(job, stack) if waits else []
        into = f"cd {shlex.quote(environment['PROJECT_REPO_DIR'])} || exit\n" if repo is not None else ""
        needs = (*([PYTHON_PACKAGES] if job.install else []), *(["repo"] if repo else []))
        needs += (START_STEP,) if waits else ()
        reads = (_READS_SECRETS if job.secrets else "") + (READS_RESUME if waits else "")
        command = f"{reads}{into}{_EACH if job.queue else job.run}\n"
        script = in_stack(command) if stack else command
        needs += (FILES,) if mounts else ()
        run = PlannedStep(RUN, script, RUN_LIMIT_S, job=True, needs=needs, secrets=job.secrets)
        steps.append(replace(run, attempts=job.attempts, retry_codes=job.retry_codes, queue=queue))
    return StartupPlan(f"start-{instance_id}", environment, (*steps, *_serving_steps(job)))


def _serving_steps(job: JobRequest) -> list[PlannedStep]:
    """Return the step that starts the job's model server, where it has one. An agent that can't runs the script."""
    server = model_server(job)
    script = f'echo "This agent can\'t start a model server."; exit {LEFT_OUT}'
    needs = (PYTHON_PACKAGES,)
    step = PlannedStep(SERVE, script, SERVE_LIMIT_S, needs=needs, secrets=job.secrets, serve=server)
    return [step] if server is not None else []


def _environment(variables: str, stack: Stack | None) -> str:
    script = _ENVIRONMENT.format(exports=shlex.quote(variables))
    return script if stack is None else script + exports()


def _waiting_steps(job: JobRequest, stack: Stack | None) -> list[PlannedStep]:
    """Return the steps that fetch the save of a run that moves here, and wait until it may start."""
    fetch = fetch_script(reads_secrets=_READS_SECRETS if job.secrets else "", left_out=LEFT_OUT)
    script = in_stack(fetch) if stack else fetch
    return [
        PlannedStep(CHECKPOINT_STEP, script, WAIT_LIMIT_S, secrets=job.secrets),
        PlannedStep(START_STEP, START_SCRIPT, WAIT_LIMIT_S),
    ]


def _stack_steps(name: str) -> list[PlannedStep]:
    stack = STACKS.get(name)
    if stack is None:  # A release of before had it when the job was requested.
        gone = f"echo {shlex.quote(f'install={name} is not known any more.')}; exit 1"
        return [PlannedStep(PYTHON_PACKAGES, gone, ENVIRONMENT_LIMIT_S)]
    install = python_packages_script(stack)
    return [
        PlannedStep(DRIVER, driver_script(stack), DRIVER_LIMIT_S),
        PlannedStep(PYTHON_PACKAGES, install, PYTHON_PACKAGES_LIMIT_S, needs=(DRIVER,)),
    ]
