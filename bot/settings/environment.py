"""Load the settings from the environment and from `.env`.

Unknown names are refused, so that a typing error does not become a default. Which variables a cloud has is in the
registry of clouds, so a new cloud needs no line here. A cloud whose required variables are not all set is absent: it is
neither queried nor offered.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_settings import DotEnvSettingsSource

from bot import vault
from bot.settings.fields import PREFIX, Clouds, Settings, Variable, known_variables, variable_of
from providers.registry import REGISTRY

#: Where credentials are kept, in the folder where the program runs.
ENV_FILE = Path(".env")


class SettingsError(ValueError):
    """Settings that cannot be used. Each line names one, says what is wrong and shows a right example."""


def load(
    clouds: Clouds = REGISTRY,
    *,
    env_file: Path | None = ENV_FILE,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read the settings; the environment wins over `env_file`. Raises `SettingsError` with one line per complaint."""
    found: dict[str, str] = {}
    if env_file is not None and env_file.is_file():
        read = DotEnvSettingsSource(Settings, env_file=env_file, env_file_encoding="utf-8").env_vars
        found.update({key.upper(): value for key, value in read.items() if value})
    found.update({key.upper(): value for key, value in (os.environ if environ is None else environ).items() if value})
    try:
        found = vault.resolved(found)
    except vault.NoKeyring as error:
        raise SettingsError(str(error)) from error
    known = {variable.name: variable for variable in known_variables(clouds)}
    problems = [_unknown(name, known) for name in found if name.startswith(PREFIX) and name not in known]
    values, configs, keyless = _own_values(found), {}, {}
    unread: list[str] = []
    for cloud, entry in clouds.items():
        try:
            if not entry.missing(found):
                configs[cloud] = entry.config(found)
            elif entry.without_key is not None:
                keyless[cloud] = entry.config(found)
        except ValidationError as error:
            by_field = {field: name for name, field in entry.fields.items()}
            wrong = [_complaint(known[by_field[_place(e)]], e) for e in error.errors()]
            (unread if entry.missing(found) else problems).extend(wrong)
    if not configs:
        # Where a cloud is set up, nothing is read without a key, so a setting of another one harms nothing.
        problems += unread
    settings: Settings | None = None
    try:
        settings = Settings.model_validate({**values, "clouds": configs, "keyless": keyless})
    except ValidationError as error:
        problems += [_complaint(known[variable_of(_place(e))], e) for e in error.errors()]
    if settings is not None:
        problems += _practice_problems(settings, clouds)
    if problems or settings is None:
        raise SettingsError("\n".join(problems))
    return settings


def _own_values(found: Mapping[str, str]) -> dict[str, str]:
    names = {field: variable_of(field) for field, item in Settings.model_fields.items() if not item.exclude}
    return {field: found[name] for field, name in names.items() if name in found}


def _place(error: Any) -> str:
    return str(error["loc"][0])


def _complaint(variable: Variable, error: Any) -> str:
    says = "" if variable.secret else f" (it says {error['input']!r})"
    return f"{variable.name}: {error['msg']}{says}. Example: {variable.name}={variable.example}"


def _unknown(name: str, known: Mapping[str, Variable]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"{name}: there is no such setting" + (
        f"; did you mean {near[0]}?" if near else "; docs/settings.md has all"
    )


def _practice_problems(settings: Settings, clouds: Clouds) -> list[str]:
    """Return the addresses that are not on this machine: short timings are for sandboxes only."""
    if not settings.practice:
        return []
    addresses = {"GPU_SHOPPER_SLACK_API_URL": settings.slack_api_url}
    for cloud, config in settings.clouds.items():
        for name, field in clouds[cloud].optional.items():
            value = getattr(config, field)
            if isinstance(value, str) and "://" in value:
                addresses[name] = value
    return [
        f"GPU_SHOPPER_PRACTICE: {name} is {url}, which is not on this machine; practice needs an address such as "
        "http://127.0.0.1:8081/"
        for name, url in addresses.items()
        if not loopback(url)
    ]


def loopback(url: str) -> bool:
    """Whether a URL names this machine and nothing else."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
