"""The profile of a model: its GPUs and disk, and the config and folder that it puts into the command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

from bot.rules.jobs.facet import Fields, JobFacet, JobFacts, Key, Text, Word, sets
from bot.rules.jobs.facets.gpus import read_gpus
from bot.rules.jobs.facets.limits import read_disk
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.model_profiles import (
    CONFIG_OPTION,
    FOLDER_OPTION,
    PLACE,
    ModelProfile,
    NotInProfile,
    check_configs,
    profile_of,
    values_of,
)
from bot.rules.policy.policy import Policy
from bot.rules.values.bad_word import BadWord, near, show


@dataclass(frozen=True, kw_only=True)
class ProfileFields:
    """The model's profile of the policy, and what `run` gives to --config and --run-dir."""

    profile: str | None = None
    config: str | None = None
    run_dir: str | None = None


def _read_profile(text: str, policy: Policy) -> Fields:
    """Read the name of a model's profile."""
    name = text.lower()
    if name not in policy.instance_profiles:
        there = ", ".join(policy.instance_profiles) or "none; the policy names their file under instance_profiles"
        raise BadWord(f"{show(text)} is not a profile; there are {there}.{near(name, policy.instance_profiles)}")
    return {"profile": name}


def _read_path(text: str) -> str:
    """Read a path on the machine, of a config or of a run's folder."""
    if not PLACE.fullmatch(text) or ".." in text.split("/"):
        raise BadWord(f"{show(text)} is not a path; write config=configs/small.yaml or run-dir=runs/small.")
    return text


def _with_machine(fields: Fields, policy: Policy) -> Fields:
    """Take the GPUs and the least disk from the profile, where no other word says them."""
    profile = policy.instance_profiles.get(fields.get("profile", ""))
    if profile is None:
        return fields
    least = machine_of(profile, policy)
    disk_gb = max(least.get("disk_gb", 0), fields.get("disk_gb", 0))
    return {**least, **fields, **({"disk_gb": disk_gb} if disk_gb else {})}


def machine_of(profile: ModelProfile, policy: Policy) -> Fields:
    """Return the GPUs and the least disk of a model's profile. Raises `BadWord`."""
    return {**read_gpus(profile.gpu, policy), **(read_disk(profile.disk, policy) if profile.disk else {})}


def _with_config(said: Fields, policy: Policy) -> Fields:
    """Put config and folder into the command. Raises `BadWord` for a config that the profile doesn't allow."""
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
    commands = []
    for number, command in enumerate(queue, 1):
        configs = values_of(CONFIG_OPTION, command)
        try:
            check_configs(name, policy.instance_profiles[name], configs)
        except NotInProfile as error:
            raise BadWord(f"Command {number} of the queue: {error}") from error
        has_folder = values_of(FOLDER_OPTION, command)
        stem = PurePosixPath(configs[0]).stem
        commands.append(command if has_folder else f"{command} --run-dir {shlex.quote(f'runs/{stem}-{number}')}")
    return tuple(commands)


def _check(job: ProfileFields, facts: JobFacts) -> BoundsVerdict | None:
    """Refuse a job whose command has a config that its profile doesn't allow now."""
    profiles = facts.policy.instance_profiles
    name = profile_of(job.profile, facts.model, profiles)
    if name is None:
        return None
    if name not in profiles:
        known = ", ".join(profiles) or "none"
        return BoundsVerdict(NotInProfile.code, f"There is no profile {name[:40]}. There are {known}.")
    try:
        for command in facts.commands:
            check_configs(name, profiles[name], values_of(CONFIG_OPTION, command))
    except NotInProfile as error:
        return BoundsVerdict(error.code, str(error))
    return None


def _read_preset(text: str, policy: Policy) -> Fields:
    """Read the name of a job that the policy names."""
    if text not in policy.presets:
        there = ", ".join(policy.presets) or "none; the policy names them under presets"
        raise BadWord(f"{show(text)} is not a preset; there are {there}.{near(text, policy.presets)}")
    return {"preset": text}


PROFILE = JobFacet(
    fields=ProfileFields,
    check=_check,
    words=(
        Word("preset", "NAME", "A job of the policy; other words replace its own.", "preset=nightly", _read_preset),
        Word("profile", "NAME", "A model's GPUs, disk and allowed configs.", "profile=moe", _read_profile),
        Word("config", "FILE", "What the command gets as --config.", "config=small.yaml", sets("config", _read_path)),
        Word(
            "run-dir",
            "FOLDER",
            "What it gets as --run-dir.",
            "run-dir=runs/a",
            sets("run_dir", _read_path),
            ("run_dir",),
        ),
    ),
    keys=(
        Key("preset", Text | None, "A job of the policy; other fields replace its own."),
        Key(
            "profile",
            Text | None,
            "The profile of a model: its GPUs, its disk and the configs that it may use, from the policy.",
            examples=["moe"],
        ),
        Key(
            "config",
            Text | None,
            "The config of the run; `run` gets it as --config.",
            examples=["configs/mosaic_small_resume.yaml"],
        ),
        Key("run_dir", Text | None, "The folder of the run; `run` gets it as --run-dir.", examples=["runs/moe"]),
    ),
    complete=(_with_machine, _with_config),
)
