"""`gpu-shopper doctor`: report missing settings and whether each credential works; it changes nothing.

Where commands go to a service elsewhere, it checks that service and the key instead.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from http import HTTPStatus

import httpx
import typer
from rich.markup import escape
from rich.table import Table

from bot import logs
from bot.cli.access.api_client import KEY, URL, elsewhere
from bot.cli.access.settings import console
from bot.clock import SystemClock
from bot.rules.checkpoints.stores import STORES
from bot.rules.grammar.job import preset_problem
from bot.rules.values.phrases import usd
from bot.services.instances import key_rotation
from bot.services.runtime.agent_archive import AgentArchive
from bot.services.runtime.clock_guard import CONFIRM_S, GuardedClock
from bot.settings import (
    ENV_FILE,
    PolicyFileError,
    PolicyNotGuarded,
    Settings,
    SettingsError,
    load,
    read_policy_file,
    refuse_loose,
)
from bot.slack.settings import SlackSettings
from bot.slack.web import Web, WebError
from bot.startup import refuse_loose_modes
from bot.wiring import build_providers
from ledger.engine.db import Database
from ledger.queries.cloud_accounts import accounts_in_use
from migrations import run as schema
from providers.contract import Preflight
from providers.rate_limits import LocalPacer
from providers.registry import REGISTRY

CHECK_TIMEOUT_S = 20.0
WHERE: Mapping[str, str] = {
    "SLACK_BOT_TOKEN": "api.slack.com/apps → your app → OAuth & Permissions → Bot User OAuth Token",
    "SLACK_APP_TOKEN": "api.slack.com/apps → your app → Basic Information → App-Level Tokens (connections:write)",
    "SLACK_SIGNING_SECRET": "api.slack.com/apps → your app → Basic Information → Signing Secret",
}

SECRET = "SLACK_SIGNING_SECRET"  # noqa: S105 # The name of a variable, not its value.


class Grade(StrEnum):
    GOOD = "ok"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: `do` says what to set or run, and is empty when nothing is to be done."""

    area: str
    grade: Grade
    sentence: str
    do: str = ""


def doctor(
    offline: bool = typer.Option(False, "--offline", help="Only look at the settings; call nobody."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
) -> None:
    """Check the installation; exits with 0 when the bot can be started, with 1 when something has to be done first.

    With GPU_SHOPPER_URL set, check that service and your key instead.
    """
    logs.configure(level="error", json=False)
    where = elsewhere()
    findings = asyncio.run(examine_client(*where, offline=offline) if where else examine(offline=offline))
    if as_json:
        shown = [{name: logs.redact(str(value)) for name, value in asdict(finding).items()} for finding in findings]
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        report(findings, at_service=where is not None)
    if any(finding.grade is Grade.BAD for finding in findings):
        raise typer.Exit(1)


async def examine_client(address: str, key: str, *, offline: bool) -> list[Finding]:
    """Return whether the service that commands go to answers, and whether it accepts the key."""
    where = Finding("settings", Grade.GOOD, f"commands go to {address}; to check a server here, unset {URL}")
    if offline:
        return [where]
    try:
        async with httpx.AsyncClient(base_url=address, timeout=CHECK_TIMEOUT_S, trust_env=False) as http:
            answer = await http.get("/api/v1/sessions?limit=1", headers={"Authorization": f"Bearer {key}"})
    except httpx.TransportError as error:
        said = f"{address} can't be reached ({type(error).__name__})"
        return [where, Finding("service", Grade.BAD, said, f"check {URL}, and that gpu-shopper serve runs there")]
    found = _key_problem(answer)
    if found:
        return [where, found]
    return [where, Finding("service", Grade.GOOD, "it answers"), Finding("key", Grade.GOOD, "it is accepted")]


def _key_problem(answer: httpx.Response) -> Finding | None:
    """Return what is wrong with an answer to the key of commands; None when the key is good."""
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        todo = f"ask an operator for a new one (gpu-shopper keys create), and set it as {KEY}"
        return Finding("key", Grade.BAD, f"the service refuses {KEY}", todo)
    if answer.status_code == HTTPStatus.FORBIDDEN:
        return Finding("key", Grade.NOTE, "the service knows the key, which may not read sessions")
    if not answer.is_success or "items" not in answer.text:
        said = f"{answer.url.host} answered {answer.status_code}, which is not this service"
        return Finding("service", Grade.BAD, said, f"check {URL}")
    return None


async def examine(*, offline: bool) -> list[Finding]:
    """Return every finding, in the order of a set-up."""
    try:
        settings = load()
    except SettingsError as error:
        return [Finding("settings", Grade.BAD, line, "see docs/settings.md") for line in str(error).splitlines()]
    logs.register_secrets(settings.secrets())
    found = [_source(), *_policy(settings)]
    found += [line async for line in _ledger(settings)]
    found += [line async for line in _slack(settings, offline=offline)]
    found += [line async for line in _clouds(settings, offline=offline)]
    return [*found, *_stores(settings), *_agent(settings)]


def _agent(settings: Settings) -> Iterator[Finding]:
    """Say whether rented machines run an agent; nothing where they can't reach the bot."""
    if not settings.node_url:
        return
    try:
        found = AgentArchive.read(settings.agent_file)
    except ValueError as error:
        yield Finding("agent", Grade.BAD, f"serve would refuse: {error}", "build it with make agent (docs/node.md)")
        return
    if found is None:
        yield Finding("agent", Grade.NOTE, "none is built, so rented machines run none", "make agent (docs/node.md)")
    else:
        yield Finding("agent", Grade.GOOD, f"rented machines run it, SHA-256 {found.sha256[:16]}…")


def _stores(settings: Settings) -> Iterator[Finding]:
    places: tuple[str, ...] = ()
    with suppress(PolicyFileError):  # It is a finding of its own.
        places = read_policy_file(settings.policy, practice=settings.practice).policy.checkpoint_places
    for store in STORES:
        area, missing = f"{store.scheme}://", [name for name in store.variables if name not in settings.stores]
        if missing:
            missed = f"checkpoints cannot be kept in {store.name}: {', '.join(missing)} not set"
            yield Finding(area, Grade.NOTE, missed, store.where)
        elif not any(place.lower().startswith(area) for place in places):
            unread = f"the policy lists no place in {store.name}, so no checkpoint is read there"
            yield Finding(area, Grade.NOTE, unread, "list them under checkpoint_places (docs/policy.md)")
        else:
            yield Finding(area, Grade.GOOD, f"checkpoints can be kept in {store.name}: its credentials are set")


def _source() -> Finding:
    try:
        if ENV_FILE.is_file():
            refuse_loose(ENV_FILE)
    except ValueError as error:
        return Finding("settings", Grade.BAD, f"serve would refuse: {error}", f"chmod 600 {ENV_FILE}")
    source = "the environment and .env" if ENV_FILE.is_file() else "the environment (there is no .env here)"
    return Finding("settings", Grade.GOOD, f"read from {source}")


def _policy(settings: Settings) -> list[Finding]:
    try:
        policy = read_policy_file(settings.policy, practice=settings.practice).policy
    except PolicyNotGuarded as error:
        sentence, command = str(error).rsplit("; run: ", 1)
        return [Finding("policy", Grade.BAD, f"serve would only end sessions: {sentence}", command)]
    except PolicyFileError as error:
        return [Finding("policy", Grade.BAD, str(error), "docs/policy.md has every setting")]
    if not (policy.approvers or policy.approver_groups or policy.may_approve_not_pinged):
        todo = (
            "set approvers in a policy file and GPU_SHOPPER_POLICY to its path, e.g. policy: {approvers: [U012AB3CD]}"
        )
        return [Finding("policy", Grade.BAD, "nobody may approve, so nothing can ever be bought", todo)]
    where = str(settings.policy) if settings.policy else "every default"
    approvers = len(policy.approvers) + len(policy.approver_groups)
    return [
        Finding("policy", Grade.GOOD, f"{where}; {approvers} approvers or groups"),
        *(
            Finding("policy", Grade.NOTE, f"nobody can use the preset {name}: {wrong}", "change it under presets")
            for name, text in policy.presets.items()
            if (wrong := preset_problem(text))
        ),
    ]


async def _ledger(settings: Settings) -> AsyncIterator[Finding]:
    """Check the ledger without changing it; `serve` creates one that does not exist yet."""
    file, found = settings.sqlite_file, partial(Finding, "ledger")
    if file is not None and not file.exists():
        yield found(Grade.NOTE, f"{file} is not there yet; gpu-shopper db upgrade or the first serve makes it")
        return
    try:
        if file is not None:
            refuse_loose_modes(settings)
        db = Database(settings.database)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                there = await schema.state(db)
                at, usable = there.revision, schema.is_usable(there)
                lost = await _without_key(db, settings) if usable else []
        finally:
            await db.close()
    except Exception as error:  # noqa: BLE001 # Whatever a driver raises, the report continues.
        yield found(Grade.BAD, f"cannot be opened: {type(error).__name__}: {error}", "check GPU_SHOPPER_DATABASE_URL")
        return
    if usable:
        yield found(Grade.GOOD, f"{'SQLite' if file else 'PostgreSQL'}, schema {at}")
        for finding in lost:
            yield finding
    elif refused := schema.refusal(*there):
        yield found(Grade.BAD, refused)
    else:
        yield found(Grade.NOTE, f"schema {at or 'base'}, newest is {schema.newest()}", "gpu-shopper db upgrade")


async def _without_key(db: Database, settings: Settings) -> list[Finding]:
    """Find open instances in accounts whose key is not set here: nothing can see or terminate them."""
    clock = SystemClock()
    async with db.read() as tx:
        open_there = await accounts_in_use(tx)
    providers = build_providers(settings, clock, LocalPacer(clock)) if open_there else {}
    try:
        found = key_rotation.unreachable(open_there, providers)
    finally:
        for provider in providers.values():
            await provider.close()
    return [Finding(one.cloud, Grade.BAD, said, f"set {REGISTRY[one.cloud].needs}") for one, said in found]


async def _slack(settings: Settings, *, offline: bool) -> AsyncIterator[Finding]:
    missing = settings.missing_for_slack()
    for name in missing:
        other = "; or set SLACK_APP_TOKEN for Socket Mode, which needs no public address"
        yield Finding("Slack", Grade.BAD, f"{name} is not set" + (other if name == SECRET else ""), WHERE[name])
    if offline or settings.slack_bot_token is None:
        return
    how = "Socket Mode" if settings.socket_mode else "HTTP"
    bot = settings.slack_bot_token.get_secret_value()
    yield await _token(settings, bot, "auth.test", "SLACK_BOT_TOKEN", f"the bot token works ({how})")
    if settings.socket_mode and settings.slack_app_token is not None:
        token = settings.slack_app_token.get_secret_value()
        yield await _token(settings, token, "apps.connections.open", "SLACK_APP_TOKEN", "the app-level token works")


async def _token(settings: Settings, token: str, method: str, variable: str, good: str) -> Finding:
    """Check a token with a method that neither posts nor changes anything."""
    options = SlackSettings(
        bot_token=token, app_token=token, base_url=settings.slack_api_url, proxy=settings.slack_proxy
    )
    web = Web(options)
    try:
        answer = await web.call(method)
    except WebError as error:
        return Finding("Slack", Grade.BAD, f"{variable}: {error}", WHERE[variable])
    finally:
        await web.close()
    team = answer.get("team")
    return Finding("Slack", Grade.GOOD, f"{good}; workspace {team}" if team else good)


async def _clouds(settings: Settings, *, offline: bool) -> AsyncIterator[Finding]:
    if not settings.clouds:
        yield Finding("clouds", Grade.BAD, "no cloud has its credentials set", "set those of at least one, below")
    for name, entry in REGISTRY.items():
        missing = entry.missing(os.environ) if name not in settings.clouds else ()
        if missing:
            other = f" (nor {' and '.join(entry.alternative)}, which is enough alone)" if entry.alternative else ""
            yield Finding(name, Grade.NOTE, f"not used: {', '.join(missing)} not set{other}", entry.where)
    if offline:
        return
    clock = GuardedClock(SystemClock(), confirm_s=CONFIRM_S)
    providers = build_providers(settings, clock, LocalPacer(clock))
    try:
        for checked in await asyncio.gather(*(provider.preflight() for provider in providers.values())):
            yield _preflight(checked)
    finally:
        for provider in providers.values():
            await provider.close()
    if doubt := clock.problem():
        yield Finding("clock", Grade.BAD, doubt, "check the time service of this machine")
    elif providers:
        yield Finding("clock", Grade.GOOD, "shows the same time as the clouds")


def _preflight(checked: Preflight) -> Finding:
    if not checked.ok:
        return Finding(checked.cloud, Grade.BAD, checked.problem or "does not work", checked.where)
    balance = f"; balance {usd(checked.balance.credit_usd)}" if checked.balance else ""
    works = f"the credential works (account {checked.account}){balance}"
    if checked.problem:
        return Finding(checked.cloud, Grade.NOTE, f"{works}. {checked.problem}")
    return Finding(checked.cloud, Grade.GOOD, works)


def report(findings: list[Finding], *, at_service: bool = False) -> None:
    """Print a table for people; foreign text is escaped and stripped of control characters."""
    table = Table(box=None, show_header=False, pad_edge=False)
    style = {Grade.GOOD: "green", Grade.NOTE: "yellow", Grade.BAD: "bold red"}
    for finding in findings:
        text = escape(logs.visible(logs.redact(finding.sentence)))
        if finding.do:
            text += f"\n  → {escape(finding.do)}"
        table.add_row(f"[{style[finding.grade]}]{finding.grade:<4}[/]", finding.area, text)
    out = console()
    out.print(table)
    bad = sum(finding.grade is Grade.BAD for finding in findings)
    ready = "Commands work." if at_service else "Ready: start it with gpu-shopper serve."
    before = "commands work" if at_service else "gpu-shopper serve"
    out.print(f"\n{bad} to do before {before}." if bad else f"\n{ready}")
