"""List the environment variables of all settings, for the check of unknown names, for doctor and for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bot.settings.fields import PREFIX, Settings
from providers.registry import REGISTRY, ProviderEntry

Clouds = Mapping[str, ProviderEntry]


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable, for the check of unknown names, `doctor` and the generated docs."""

    name: str
    doc: str
    default: str
    example: str
    secret: bool
    cloud: str = ""


def variable_of(field: str) -> str:
    """Return the environment variable of one field of `Settings`."""
    return str(Settings.model_fields[field].validation_alias or f"{PREFIX}{field}".upper())


def cloud_variables(entry: ProviderEntry) -> tuple[Variable, ...]:
    """Return the variables of one cloud, the required ones first."""
    found = []
    for name, field in entry.fields.items():
        item = entry.config_class.model_fields[field]
        secret = item.annotation is SecretStr
        default = "" if secret or item.default in (None, PydanticUndefined) else str(item.default)
        doc = f"Credential of {entry.name}; made at {entry.where}." if secret else f"{field} of {entry.name}."
        found.append(Variable(name, item.description or doc, default, default or "…", secret, entry.name))
    return tuple(found)


def known_variables(clouds: Clouds = REGISTRY) -> tuple[Variable, ...]:
    """Return every variable that is read, in the order of the docs."""
    own = [
        Variable(
            name=variable_of(name),
            doc=item.description or "",
            default=_default_text(name, item),
            example=str((item.examples or [""])[0]),
            secret=item.annotation == SecretStr | None,
        )
        for name, item in Settings.model_fields.items()
        if not item.exclude
    ]
    theirs = [variable for entry in clouds.values() for variable in cloud_variables(entry)]
    return (*own, *theirs)


def _default_text(name: str, item: FieldInfo) -> str:
    if name == "data_dir":
        return "~/.local/share/gpu-shopper"
    if isinstance(item.default, bool):
        return str(item.default).lower()
    return "" if item.default is None else str(item.default)
