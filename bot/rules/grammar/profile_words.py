"""Read the words of a model's profile, and put its config and its folder into the command that runs."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import Any

from bot.rules.grammar.bad_word import BadWord, near, show
from bot.rules.policy.model_profiles import (
    CONFIG_OPTION,
    FOLDER_OPTION,
    PLACE,
    NotInProfile,
    check_configs,
    profile_of,
    values_of,
)
from bot.rules.policy.policy import Policy


def read_profile(text: str, policy: Policy) -> dict[str, Any]:
    """Read the name of a model's profile."""
    name = text.lower()
    if name not in policy.instance_profiles:
        there = ", ".join(policy.instance_profiles) or "none; the policy names their file under instance_profiles"
        raise BadWord(f"{show(text)} is not a profile; there are {there}.{near(name, policy.instance_profiles)}")
    return {"profile": name}


def read_place(text: str) -> str:
    """Read a path on the machine, of a config or of a run's folder."""
    if not PLACE.fullmatch(text) or ".." in text.split("/"):
        raise BadWord(f"{show(text)} is not a path; write config=configs/small.yaml or run-dir=runs/small.")
    return text


def with_config(said: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Return the fields of a job whose command names its config and its folder. Raises `BadWord` for a wrong config."""
    profiles = policy.instance_profiles
    name = profile_of(said.get("profile"), said.get("model"), profiles)
    run, config, folder = said.get("run"), said.get("config"), said.get("run_dir")
    if queue := said.get("queue"):
        if config is not None or folder is not None:
            raise BadWord(
                "Each command of a queue has its own --config and --run-dir, so leave config= and run-dir= out."
            )
        return {**said, "profile": name, "queue": _each_with_folder(name, queue, policy)}
    if run is None:
        if config is not None or folder is not None:
            raise BadWord('config= and run-dir= are for a command; add one, such as run="python train.py".')
        return said
    if name is None and config is None and folder is None:
        return said
    configs = values_of(CONFIG_OPTION, run)
    if config is not None and configs and set(configs) != {config}:
        raise BadWord(f"run= has --config {configs[0][:80]}, and config= says {config[:80]}. Keep one of the two.")
    config = config or next(iter(configs), None)
    if name is not None:
        try:
            check_configs(name, profiles[name], configs or tuple(filter(None, [config])))
        except NotInProfile as error:
            raise BadWord(str(error)) from error
    folders = values_of(FOLDER_OPTION, run)
    if folder is not None and folders and set(folders) != {folder}:
        raise BadWord(f"run= has --run-dir {folders[0][:80]}, and run-dir= says {folder[:80]}. Keep one of the two.")
    folder = folder or next(iter(folders), None) or (f"runs/{PurePosixPath(config).stem}" if config else None)
    added = [f"--config {shlex.quote(config)}"] if config and not configs else []
    added += [f"--run-dir {shlex.quote(folder)}"] if folder and not folders else []
    return {**said, "profile": name, "config": config, "run_dir": folder, "run": " ".join([run.rstrip(), *added])}


def _each_with_folder(name: str | None, queue: tuple[str, ...], policy: Policy) -> tuple[str, ...]:
    """Check the config of each command of a queue, and give each a folder of its own where it names none."""
    if name is None:
        return queue
    found = []
    for number, command in enumerate(queue, 1):
        configs = values_of(CONFIG_OPTION, command)
        try:
            check_configs(name, policy.instance_profiles[name], configs)
        except NotInProfile as error:
            raise BadWord(f"Command {number} of the queue: {error}") from error
        has_folder = values_of(FOLDER_OPTION, command)
        stem = PurePosixPath(configs[0]).stem
        found.append(command if has_folder else f"{command} --run-dir {shlex.quote(f'runs/{stem}-{number}')}")
    return tuple(found)
