"""Read the optional policy file: YAML with the two sections `policy` and `timing`, checked key by key.

Every error names the file, the line and the key, and shows a right value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from bot.rules.grammar.job import check_presets, check_profiles
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.policy.validation import MERGED, RENAMED, validated
from bot.settings.ownership import ChangeableByOthers, read_guarded
from bot.settings.profiles_file import ProfilesError, read_profiles

SECTIONS: Mapping[str, type[Policy | Timing]] = MappingProxyType({"policy": Policy, "timing": Timing})

#: The setting that names another file.
PROFILES = "instance_profiles"
#: Examples for the settings whose default (nothing) does not show what a value looks like.
EXAMPLES: Mapping[str, object] = MappingProxyType(
    {
        "approvers": ["U012AB3CD"],
        "approver_groups": ["S0614TZR7"],
        "may_approve_not_pinged": ["U012AB3CD"],
        "never_approve": ["U012AB3CD"],
        "same_person": [["U012AB3CD", "operator:ada"]],
        "auto_approve_below_usd": 5,
        "auto_approve_signed_by": "U012AB3CD",
        "auto_approve_until": date(2026, 12, 31),
        "two_approvers_above_usd": 500,
        "approval_groups": {"leads": ["U012AB3CD", "operator:ada"], "finance": ["S0614TZR7"]},
        "approval_tiers": [{"name": "large", "above_usd": 200, "approvals": 2, "group": "approvers"}],
        "break_glass": ["U012AB3CD"],
        "escalate_to": ["approvers"],
        "blocked_gpus": ["RTX5090"],
        "fallback_contacts": ["U012AB3CD"],
        "teams": {"research": ["U012AB3CD", "operator:ada"]},
        "budgets": {"global": {"daily": 200, "monthly": 3000}, "user:*": {"daily": 50}},
        "budget_own_thresholds": {"user:*": [0.9]},
        "budget_owners": {"global": ["U012AB3CD"]},
        "budget_admins": ["U012AB3CD"],
        "blocked_hosts": ["vast:51234"],
        "blocked_countries": ["CN"],
        "webhook_networks": ["10.1.0.0/16"],
        "instance_profiles": "instance_profiles.yaml",
        "checkpoint_places": ["s3://bucket/runs", "hf://org"],
        "presets": {"nightly": '8xH100 6h max=$150 for="nightly training"'},
        "consumers": {"atlas": {"clouds": ["vast"], "gpus": ["RTX4090"], "max_hours": 4}},
    }
)


class PolicyFileError(ValueError):
    """The policy file cannot be used; the message names the file, the key and a right example."""


class PolicyNotGuarded(PolicyFileError):
    """Others than root and this user can change the policy file, so it decides about no spend."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The policy and the timing: what the file sets, over the defaults."""

    policy: Policy
    timing: Timing
    #: The other files that were read with it.
    beside: tuple[Path, ...] = ()


def default_of(item: Field[Any]) -> Any:
    """Return the default of one dataclass field, whichever way it is given."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def example_of(item: Field[Any]) -> str:
    """Return one right line of YAML for a setting."""
    value = EXAMPLES.get(item.name, default_of(item))
    text = yaml.safe_dump(plain(value), default_flow_style=True, sort_keys=False, width=1000)
    return f"{item.name}: {text.removesuffix('...' + chr(10)).strip()}"


def plain(value: Any) -> Any:
    """Return a default in types that YAML and JSON can write."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def read_policy_file(path: Path | None, *, practice: bool = False, spends: bool = True) -> PolicyFile:
    """Read `path` (None: every default). Raises `PolicyFileError`; `practice` lifts the floors of the timing.

    Where nothing is spent (`spends` off) the file may be one that others can change.
    """
    sections: dict[str, dict[str, Any]] = {}
    beside: tuple[Path, ...] = ()
    if path is not None:
        reader = _Reader(path, read_guarded if spends else _read)
        sections, beside = reader.sections(), tuple(reader.beside)
    try:
        policy = check_profiles(check_presets(validated(Policy(**sections.get("policy", {})))))
        timing = Timing(**sections.get("timing", {})).validated(practice=practice)
    except ValueError as error:
        raise PolicyFileError(f"{path}: {error}") from error
    return PolicyFile(policy, timing, beside)


class _Reader:
    def __init__(self, path: Path, read: Callable[[Path], str]) -> None:
        self._path, self._read = path, read
        self.beside: list[Path] = []

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return section → setting → checked value."""
        found: dict[str, dict[str, Any]] = {}
        for name, key, body in self._items(self._root()):
            if name not in SECTIONS:
                wanted = " and ".join(SECTIONS)
                raise self._error(key, f"`{name}` is not a section; a policy file has the sections {wanted}")
            known = {item.name: item for item in fields(SECTIONS[name])}
            hints = get_type_hints(SECTIONS[name])
            found[name] = {
                setting: self._value(at, known[self._known(at, setting, known)], hints[setting], node)
                for setting, at, node in self._items(body)
            }
        return found

    def _root(self) -> yaml.Node | None:
        try:
            text = self._read(self._path)
        except ChangeableByOthers as error:
            raise PolicyNotGuarded(str(error)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyFileError(f"{self._path}: the policy file cannot be read ({error})") from error
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            raise PolicyFileError(f"{self._path}: this is not YAML ({error}); a right file: {_sample()}") from error

    def _items(self, node: yaml.Node | None) -> list[tuple[str, yaml.Node, yaml.Node]]:
        if node is None or (isinstance(node, yaml.ScalarNode) and node.value in {"", "~", "null"}):
            return []
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"expected `key: value` lines; a right file: {_sample()}")
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise self._error(key, f"`{key.value}` is there twice; keep one of the two")
            seen.add(key.value)
        return [(str(key.value), key, value) for key, value in node.value]

    def _known(self, at: yaml.Node, setting: str, known: Mapping[str, Field[Any]]) -> str:
        if setting in known:
            return setting
        renamed = RENAMED.get(setting)
        if renamed is not None and renamed in known:
            example = example_of(known[renamed])
            raise self._error(at, f"`{setting}` is now called `{renamed}`; rename it. Example: {example}")
        merged = MERGED.get(setting)
        if merged is not None and merged in known:
            example = example_of(known[merged])
            raise self._error(at, f"`{setting}` is part of `{merged}` now; delete it. Example: {example}")
        near = difflib.get_close_matches(setting, known, n=1)
        hint = f"; did you mean {near[0]}? Example: {example_of(known[near[0]])}" if near else ""
        raise self._error(at, f"`{setting}` is not a setting{hint or '; docs/policy.md lists them all'}")

    def _value(self, at: yaml.Node, item: Field[Any], hint: Any, node: yaml.Node) -> Any:
        loader = yaml.SafeLoader("")
        try:
            raw = loader.construct_document(node)
        except (yaml.YAMLError, ValueError) as error:
            raise self._error(at, f"{item.name}: {error}. Example: {example_of(item)}") from error
        finally:
            loader.dispose()
        if item.name == PROFILES:
            file = self._path.parent / raw if isinstance(raw, str) else None
            if file is None:
                raise self._error(at, f"{item.name} names a file. Example: {example_of(item)}")
            self.beside.append(file)
            try:
                return MappingProxyType(read_profiles(file, self._read))
            except ChangeableByOthers as error:
                raise PolicyNotGuarded(str(error)) from error
            except ProfilesError as error:
                raise self._error(at, str(error)) from error
        if isinstance(raw, bool) and hint is not bool:
            raise self._error(at, f"{item.name}: a yes or no does not belong here. Example: {example_of(item)}")
        try:
            checked = TypeAdapter(hint, config=ConfigDict(strict=False)).validate_python(_numbers(raw))
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            message = f"{item.name}: {problem} (it says {raw!r}). Example: {example_of(item)}"
            raise self._error(at, message) from error
        return MappingProxyType(checked) if isinstance(checked, dict) else checked

    def _error(self, node: yaml.Node, message: str) -> PolicyFileError:
        return PolicyFileError(f"{self._path}:{node.start_mark.line + 1}: {message}")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _numbers(raw: Any) -> Any:
    """Return a YAML float as its decimal text, so that 1.1 stays 1.1.

    A `true` in place of a number is refused before this.
    """
    if isinstance(raw, float):
        return str(raw)
    return raw


def _sample() -> str:
    return "policy: {approvers: [U012AB3CD], max_hours: 12}"
