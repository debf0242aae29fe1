"""Publish a dataclass of the wire: its strict form, which OpenAPI describes and FastAPI checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.dataclasses import dataclass

from bot.wire.codec import ValueLimits


def published(kind: type[Any], names: Mapping[type[Any], str], config: ConfigDict) -> Any:
    """Return a subclass of a wire's dataclass that checks what it is made of. `names` has the public names."""
    hints = get_type_hints(kind, include_extras=True)
    space: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": __name__, "__annotations__": {}}
    for one in fields(kind):
        is_open = one.default is MISSING or one.metadata["always"]
        default = ... if is_open else one.default
        about, examples = one.metadata["about"], one.metadata["examples"]
        space[one.name] = Field(default, description=about, repr=one.repr, examples=examples)
        space["__annotations__"][one.name] = _published_type(hints[one.name], names, config)
    made = type(names[kind], (kind,), space)
    return dataclass(frozen=True, kw_only=True, config=config)(made)


def _published_type(hint: Any, names: Mapping[type[Any], str], config: ConfigDict) -> Any:
    """Return a type with the limits and the objects in it as pydantic reads them."""
    origin, parts = get_origin(hint), [_published_type(one, names, config) for one in get_args(hint)]
    if isinstance(hint, ValueLimits):
        return Field(**hint.given)
    if hint is datetime:
        return AwareDatetime
    if is_dataclass(hint) and isinstance(hint, type):
        return published(hint, names, config)
    if origin is None:
        return hint
    if origin is Annotated:
        return Annotated[*parts]
    return Union[*parts] if origin is UnionType else origin[*parts]
