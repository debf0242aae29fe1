"""Collect every value that programs and people read by name: of webhooks, REST, the command line, logs and settings."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain
from pathlib import Path

from bot.cli.command_table import COMMANDS
from bot.rules.market.filters import EXCLUSIONS
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.rules.webhooks import webhooks
from ledger.kernel import states
from ledger.kernel.checkpoint_step import CheckpointStep
from ledger.kernel.end_reason import EndReason
from ledger.kernel.entry_kind import EntryKind
from ledger.kernel.event_kind import EventKind
from ledger.kernel.job_state import JobState
from ledger.kernel.proof import ProofKind
from ledger.kernel.request_kind import RequestKind
from providers import errors
from tests.architecture.sentences import ROOT, constant


def surfaces() -> dict[str, set[str]]:
    """Where a value is read → the values."""
    return {
        "event": set(EventKind),
        "end reason": set(EndReason),
        "proof": set(ProofKind),
        "state": set(chain.from_iterable(_states())),
        "notification": set(states.NotificationKind),
        "ledger entry": set(EntryKind),
        "request": set(RequestKind),
        "checkpoint step": set(CheckpointStep),
        "reply code": {*ReplyCode, *EXCLUSIONS},
        "cloud error": {one.code for one in vars(errors).values() if hasattr(one, "code")},
        "webhook topic": set(webhooks.Topic),
        "webhook event": set(webhooks.MESSAGES),
        "webhook field": _webhook_fields(),
        "job": set(jobs()),
        "metric": set(re.findall(r'_family\(\s*"(\w+)"', _text("bot/services/audit/metrics.py"))),
        "command": set(COMMANDS) | set(re.findall(r"^#+ gpu-shopper (.+)$", _text("docs/cli.md"), re.MULTILINE)),
        "option": set(re.findall(r"--[a-z][a-z-]+", _text("docs/cli.md"))),
        "policy key": {one.name for one in fields(Policy)},
        "setting": set(re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", _text("docs/settings.md"))),
        "REST": set(rest(json.loads(_text("docs/openapi.json")))),
    }


def jobs() -> Iterator[str]:
    """The name of every job of the ticker, as a log line and the health page show it; a cloud's name stands as `X`."""
    for node in ast.walk(ast.parse(_text("bot/ticker/sweeps.py"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ScheduledJob":
            yield constant(node.args[0]) or "…"


def rest(document: object) -> Iterator[str]:
    """The fields, values, parameters, paths and schemas of the API's description."""
    if isinstance(document, list):
        yield from chain.from_iterable(map(rest, document))
    if not isinstance(document, dict):
        return
    for key, value in document.items():
        if key in ("properties", "schemas", "paths"):
            yield from value
        elif key == "enum":
            yield from map(str, value)
        elif key == "parameters":
            yield from (one["name"] for one in value if "name" in one)
        yield from rest(value)


def _states() -> Iterator[type[JobState | states.SessionState]]:
    yield from (JobState, *(kind for kind in vars(states).values() if getattr(kind, "__name__", "").endswith("State")))


def _webhook_fields() -> set[str]:
    """The names in a message: every string that its module has, which is one word."""
    tree = ast.parse(_text("bot/services/webhooks/delivery.py"))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in texts if re.fullmatch(r"[a-z_]+", text)}


def _text(path: str) -> str:
    return (ROOT / Path(path)).read_text(encoding="utf-8")
