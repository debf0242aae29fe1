"""Describe what an agent reports about its machine: GPUs, driver, disk, host key, and how its start went.

All of it is the machine's own word. Only CPU, network and logins decide something: whether the machine is idle.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from bot.rules.nodes.mount_steps import FILES
from bot.rules.nodes.stack_scripts import DRIVER, PYTHON_PACKAGES
from bot.rules.stacks.stack import STACKS
from bot.rules.values.phrases import plural, seconds_in_words
from bot.wire.checkin import MachineReport, StartupStep, StepOutcome

#: The steps of the start-up that start the job, and its model server.
RUN: Final = "run"
SERVE: Final = "serve"


def known_by(found: MachineReport, now: datetime) -> MachineReport:
    """Return the report with its times cut to what can be true now."""
    at = found.last_login_at
    return found if at is None or at <= now else replace(found, last_login_at=now)


def machine_line(found: MachineReport | None) -> str:
    """Describe the machine in one sentence; "" while nothing is known of it."""
    if found is None:
        return ""
    said = [f"{count} × {name} with {memory_mb / 1024:.0f} GB" for (name, memory_mb), count in _alike(found).items()]
    said += [f"driver {found.driver}"] if found.driver else []
    said += [f"CUDA {found.cuda}"] if found.cuda else []
    said += [f"{found.disk_free_gb:,} GB of disk free"] if found.disk_free_gb is not None else []
    hottest = max((one.temperature_c for one in found.gpus if one.temperature_c is not None), default=None)
    said += [f"at most {hottest} °C"] if hottest is not None else []
    line = f"It has {', '.join(said)}." if said else ""
    if found.exit_code:
        line += f" Its start script failed at {found.startup_step} with exit code {found.exit_code}."
    if busy := activity_words(found):
        line += f" Last report: {', '.join(busy)}."
    line += _steps(found.steps)
    if found.interruption:
        line += f" It was interrupted: {found.interruption}."
    return line.strip()


#: What each step of the start-up does, where people read that it runs now.
_DOING = {
    "environment": "setting variables",
    "packages": "installing packages",
    DRIVER: "checking the driver",
    PYTHON_PACKAGES: "installing Python packages",
    "repo": "fetching the repository",
    FILES: "fetching its files",
    "files": "fetching files",
    "run": "starting the command",
    SERVE: "starting the model server",
}


def startup_line(steps: tuple[StartupStep, ...], install: str | None = None) -> str:
    """Say in one short line how far the start-up is: `Start-up: installing packages, 41 s`; "" where there is none.

    `install` names the software that the job asked for. A failure stays the line, because later steps may run without
    the failed one.
    """
    if not steps:
        return ""
    failed = next((one for one in steps if one.state is StepOutcome.FAILED), None)
    if failed is not None:
        code = f" (exit {failed.exit_code})" if failed.exit_code is not None else ""
        return f"Start-up failed at {failed.name}{code}"
    running = next((one for one in steps if one.state is StepOutcome.RUNNING), None)
    if running is not None:
        doing, stack = _DOING.get(running.name, running.name), STACKS.get(install or "")
        if running.name == PYTHON_PACKAGES and stack is not None:
            doing = f"installing {stack.first_package} and more"
        return f"Start-up: {doing}, {seconds_in_words(running.seconds)}"
    if any(one.state is StepOutcome.WAITING for one in steps):
        done = sum(one.state is not StepOutcome.WAITING for one in steps)
        return f"Start-up: {done} of {plural(len(steps), 'step')} done"
    return f"Start-up done in {seconds_in_words(sum(one.seconds for one in steps))}"


def startup_changed(before: MachineReport | None, after: MachineReport | None) -> bool:
    """Whether a step of the start-up came to another state; its seconds alone are no change."""
    was, now_is = (
        [(one.name, one.state) for one in found.steps] if found is not None else [] for found in (before, after)
    )
    return was != now_is


def activity_words(found: MachineReport | None) -> list[str]:
    """Say how busy the machine is beside its GPUs: `["CPU 3%", "no open login"]`; empty where that is not reported."""
    if found is None:
        return []
    said = [f"CPU {found.cpu_percent:.0f}%"] if found.cpu_percent is not None else []
    said += [f"network {found.network_kb_s:,} kB/s"] if found.network_kb_s is not None else []
    if found.logins is not None:
        said.append(plural(found.logins, "open login") if found.logins else "no open login")
    if found.last_login_at is not None:
        said.append(f"last login {found.last_login_at:%Y-%m-%d %H:%M} UTC")
    return said


def _steps(steps: tuple[StartupStep, ...]) -> str:
    """Describe each step: ` Steps: packages 12 s, repo runs now, run waits.`; "" where there is none."""
    said = {
        StepOutcome.WAITING: "{0.name} waits",
        StepOutcome.RUNNING: "{0.name} runs now",
        StepOutcome.DONE: "{0.name} {0.seconds} s",
        StepOutcome.FAILED: "{0.name} failed with exit code {0.exit_code}",
        StepOutcome.SKIPPED: "{0.name} skipped",
    }
    listed = ", ".join(said[one.state].format(one) for one in steps)
    return f" Steps: {listed}." if listed else ""


def _alike(found: MachineReport) -> dict[tuple[str, int], int]:
    alike: dict[tuple[str, int], int] = {}
    for one in found.gpus:
        alike[one.model, one.memory_mb] = alike.get((one.model, one.memory_mb), 0) + 1
    return alike
