"""Say which machine and which configs a model may use, as the team's `instance_profiles.yaml` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from bot.rules.values.reply_code import ReplyCode

#: An option of a command and its value: `--config a.yaml`, `--config=a.yaml`, `--config "a.yaml"`.
_OPTION: Final = r"(?<![\w-])--{name}(?:=|\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s;&|\"']+)"
CONFIG_OPTION, FOLDER_OPTION = (re.compile(_OPTION.format(name=name), re.ASCII) for name in ("config", "run[-_]dir"))
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}", re.ASCII)
PLACE: Final = re.compile(r"[\w./@+-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """The GPUs and the least disk of one model, written as words are, and its configs; none: any config."""

    gpu: str
    disk: str = ""
    configs: tuple[str, ...] = ()

    def allows(self, config: str) -> bool:
        """Whether a config is one of these: by its path, or by its name where the profile gives a name alone."""
        name = PurePosixPath(config).name
        return not self.configs or any(config == one or ("/" not in one and name == one) for one in self.configs)


class NotInProfile(ValueError):
    """Refuse what a model's profile does not allow; `code` is stable, the message is for people."""

    code = ReplyCode.BAD_CONFIG


def profile_of(job_profile: str | None, model: str | None, profiles: Mapping[str, ModelProfile]) -> str | None:
    """Return the profile that a job has: the one that it names, or the one that is called like its model."""
    if job_profile is not None:
        return job_profile
    return model.lower() if model is not None and model.lower() in profiles else None


def values_of(option: re.Pattern[str], command: str) -> tuple[str, ...]:
    """Return every value that a command gives to an option, without quotes."""
    return tuple(found["value"].strip("\"'") for found in option.finditer(command))


def check_configs(name: str, profile: ModelProfile, configs: tuple[str, ...]) -> None:
    """Refuse a config that the profile doesn't allow, or none at all. Raises `NotInProfile`."""
    known = ", ".join(profile.configs) or "configs/small.yaml"
    if not configs:
        raise NotInProfile(f"The profile {name} needs a config; write config={known.split(', ')[0]}.")
    for config in configs:
        if not profile.allows(config):
            raise NotInProfile(f"The profile {name} doesn't allow the config “{config[:80]}”. Allowed: {known}.")


def problems(profiles: Mapping[str, ModelProfile]) -> Iterator[str]:
    """Say what is wrong with the profiles themselves; the language checks their GPUs and disks."""
    for name, profile in profiles.items():
        if not NAME.fullmatch(name):
            yield f"instance_profiles: `{name[:40]}` is not a name; use small letters, digits, -, _ and ."
        wrong = next((one for one in profile.configs if not PLACE.fullmatch(one)), None)
        if wrong is not None:
            yield f"instance_profiles.{name}: `{wrong[:80]}` is not a config; write it like configs/small.yaml"
