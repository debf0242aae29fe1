"""Read the models' profiles, a YAML file that the policy names: model → GPUs, disk and allowed configs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from bot.rules.policy.model_profiles import ModelProfile

EXAMPLE = "moe: {gpu: 8xRTX3090, disk: 64GB, configs: [mosaic_small_resume.yaml]}"
_PROFILE = TypeAdapter(ModelProfile)


class ProfilesError(ValueError):
    """The profiles cannot be used; the message names the file, the key and a right example."""


def read_profiles(path: Path, read: Callable[[Path], str]) -> dict[str, ModelProfile]:
    """Read the profiles of every model with `read`, which returns the text of a file.

    Raises `ProfilesError`, also for a key that no profile has, and what `read` raises for a file of others.
    """
    try:
        found = yaml.safe_load(read(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ProfilesError(f"{path}: the profiles cannot be read ({error})") from error
    except yaml.YAMLError as error:
        raise ProfilesError(f"{path}: this is not YAML ({error}). Example: {EXAMPLE}") from error
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise ProfilesError(f"{path}: expected a name and its profile. Example: {EXAMPLE}")
    return {str(name): _profile(path, str(name), one) for name, one in found.items()}


def _profile(path: Path, name: str, said: dict[Any, Any]) -> ModelProfile:
    known = [item.name for item in fields(ModelProfile)]
    # A misspelt key would let every config pass.
    if unknown := [key for key in said if key not in known]:
        raise ProfilesError(f"{path}: {name}.{unknown[0]} is no key of a profile; there are {', '.join(known)}")
    try:
        return _PROFILE.validate_python(said)
    except ValidationError as error:
        problem = error.errors()[0]
        at = ".".join(map(str, (name, *problem["loc"])))
        raise ProfilesError(f"{path}: {at}: {problem['msg']}. Example: {EXAMPLE}") from error
