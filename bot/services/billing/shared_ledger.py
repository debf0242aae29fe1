"""Share the ledger with other tools: import their costs once, export ours, verify and summarize all of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from bot.rules.billing.external_costs import OWN, SKILL, External, exported_id, read, unmatched
from bot.rules.budgets.budget import said
from bot.rules.values.phrases import usd
from bot.rules.values.reply_code import ReplyCode
from bot.rules.values.text import in_markdown
from bot.services.access import authorization
from bot.services.billing.costs import named
from bot.services.billing.rollup import entry_hash
from bot.services.billing.shared_file import SharedFileError, others, read_locked
from bot.services.budgets import enforcement
from bot.services.nodes.connection import api_url, ssh_command
from bot.services.runtime.commands import Reply, refuse
from bot.services.runtime.context import Context
from ledger.core import NewEntry, book_all
from ledger.kernel.actor import SYSTEM, Actor
from ledger.kernel.entry_kind import EntryKind
from ledger.models import ExternalCost, Node
from ledger.queries.nodes import nodes_of
from ledger.queries.shared_ledger import (
    OwnEntry,
    add_externals,
    booked_of_tools,
    chain,
    entries_of,
    externals_known,
    live_instances,
    others_entries,
    own_entries,
    totals,
)
from ledger.queries.spend import EVERYBODY, Purse, costs

log = logging.getLogger(__name__)

#: Costs that are written in one transaction.
CHUNK = 500
#: The entry of a cost and whether that is new, or one sentence about why it is refused.
_Done = tuple[str, bool] | str


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check of the ledger; `problems` is empty when all is well."""

    entries: int
    hashed: int
    waiting: int
    spent_usd: Decimal
    head: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything that was ever spent, by tool, provider and owner, with the current budgets."""

    total_usd: Decimal
    tools: tuple[tuple[str, Decimal], ...]
    providers: tuple[tuple[str, Decimal], ...]
    owners: tuple[tuple[str, Decimal], ...]
    budgets: tuple[str, ...]
    at: datetime


async def append(ctx: Context, actor: Actor, entry: object) -> Reply:
    """Book one cost of another tool, once."""
    now = ctx.clock.now()
    found = read(entry, now, ctx.policy.external_entry_usd)
    if isinstance(found, str):
        return refuse(ReplyCode.BAD_ENTRY, found)
    (done,) = await _booked(ctx, actor, [found], now)
    if isinstance(done, str):
        return refuse(ReplyCode.REFUND_UNMATCHED, f"This refund is not booked. {done}")
    entry_id, new = done
    if new:
        await enforcement.noticed(ctx, actor.ref, now)
    outcome = "is booked" if new else "was booked already"
    sentence = f"{usd(abs(found.amount_usd))} of {found.skill} at {found.provider} {outcome}."
    return Reply(True, ReplyCode.BOOKED if new else ReplyCode.KNOWN, sentence, {"entry_id": entry_id})


async def append_all(ctx: Context, actor: Actor, entries: Sequence[object]) -> tuple[int, list[str]]:
    """Book every cost of a shared file that is not known yet; return `(how many were new, problems of the others)`."""
    now = ctx.clock.now()
    read_all = [read(entry, now, ctx.policy.external_entry_usd) for entry in entries]
    found = {one.key: one for one in read_all if isinstance(one, External)}
    wrong = [f"entry {number}: {one}" for number, one in enumerate(read_all, 1) if isinstance(one, str)]
    async with ctx.db.read() as tx:
        known = await externals_known(tx, list(found))
    fresh = [one for key, one in found.items() if key not in known]
    done = await _all_booked(ctx, actor, sorted(fresh, key=lambda one: one.amount_usd < 0), now)
    new = sum(one[1] for one in done if not isinstance(one, str))
    if new:
        await enforcement.noticed(ctx, actor.ref, now)
    return new, wrong + [one for one in done if isinstance(one, str)]


async def import_due(ctx: Context) -> int:
    """Import what other tools wrote into the file that the policy names. Return how many costs were new."""
    if not ctx.policy.cost_ledger_file:
        return 0
    path = Path(ctx.policy.cost_ledger_file)
    try:
        entries = others(await asyncio.to_thread(read_locked, path))
    except (SharedFileError, OSError) as error:
        log.warning("the shared cost ledger is not read: %s", error)
        return 0
    new, wrong = await append_all(ctx, SYSTEM, entries)
    if wrong and new:
        log.warning("%d entries of %s are not usable; the first: %s", len(wrong), path, wrong[0])
    return new


async def _all_booked(ctx: Context, actor: Actor, found: Sequence[External], now: datetime) -> list[_Done]:
    """Book all of them in few transactions; return the outcome of each."""
    done: list[_Done] = []
    for start in range(0, len(found), CHUNK):
        chunk = found[start : start + CHUNK]
        try:
            done += await _booked(ctx, actor, chunk, now)
        except Exception as error:  # One wrong entry must not keep out the others.
            if len(chunk) == 1:
                raise
            log.warning("%d costs of other tools are not taken together, but one by one: %s", len(chunk), error)
            done += await _one_by_one(ctx, actor, chunk, now)
    return done


async def _one_by_one(ctx: Context, actor: Actor, chunk: Sequence[External], now: datetime) -> list[_Done]:
    """Book each in its own transaction. Raise the first error where none at all can be written."""
    done: list[_Done] = []
    errors: list[Exception] = []
    for one in chunk:
        try:
            done += await _booked(ctx, actor, [one], now)
        except Exception as error:
            log.exception("a cost of %s cannot be booked", one.skill)
            errors.append(error)
            done.append(f"{usd(one.amount_usd)} of {one.skill} at {one.provider}: the ledger does not take it.")
    if len(errors) == len(chunk):
        raise errors[0]
    return done


async def _booked(ctx: Context, actor: Actor, chunk: Sequence[External], now: datetime) -> list[_Done]:
    """Book the chunk in one transaction; return for each its entry and whether it is new, or why it is refused."""
    async with ctx.db.write() as tx:
        left = await booked_of_tools(tx, {one.skill for one in chunk}, actor.ref)
        known = await externals_known(tx, [one.key for one in chunk])
        refused: dict[str, str] = {}
        taken: list[External] = []
        for one in chunk:
            if one.key in known:
                continue
            if why := unmatched(one, left[one.skill]):
                refused[one.key] = why
                continue
            left[one.skill] += one.amount_usd
            taken.append(one)
        taken.sort(key=lambda one: one.key)  # In one order, so that two appends of the same entries cannot deadlock.
        await book_all(tx, [_entry(one) for one in taken])
        ids = await entries_of(tx, [f"external/{one.key}" for one in taken])
        known |= {one.key: ids[f"external/{one.key}"] for one in taken}
        new = await add_externals(tx, [_row(one, known[one.key], actor, now) for one in taken])
        return [refused[one.key] if one.key in refused else (known[one.key], one.key in new) for one in chunk]


def _entry(one: External) -> NewEntry:
    mine, theirs = f"external:{one.skill}", f"payable:{one.provider}:external"
    return NewEntry(
        key=f"external/{one.key}",
        kind=EntryKind.EXTERNAL,
        debit=mine if one.amount_usd > 0 else theirs,
        credit=theirs if one.amount_usd > 0 else mine,
        amount_usd=abs(one.amount_usd),
        at=one.at,
        component=one.action[:24],
        note=one.notes,
    )


def _row(one: External, entry_id: str, actor: Actor, now: datetime) -> dict[str, Any]:
    return {**asdict(one), "entry_id": entry_id, "owner": actor.ref, "added_at": now}


async def exported(ctx: Context, since: datetime | None = None) -> list[dict[str, Any]]:
    """Return our own entries, and then other tools' costs, in the format that tools share."""
    async with ctx.db.read() as tx:
        found, theirs = await own_entries(tx, since), await others_entries(tx, since)
    ours = [_shared(f"{OWN}{one.id}", SKILL, one) for one in found]
    return ours + [_shared(exported_id(one.key), one.skill, one) for one in theirs]


def _shared(entry_id: str, skill: str, one: OwnEntry | ExternalCost) -> dict[str, Any]:
    return {
        "id": entry_id,
        "skill": skill,
        "provider": one.provider,
        "action": one.action,
        "amount_usd": float(one.amount_usd),
        "timestamp": one.at.isoformat(),
        "notes": one.notes,
    }


async def verify(ctx: Context) -> Checked:
    """Check that the hash chain of entries is whole, and that every sum agrees with the entries."""
    problems = []
    async with ctx.db.read() as tx:
        sums = await totals(tx)
        before, expected = "", 0
        async for number, stored_hash, entry in chain(tx):
            expected += 1
            if number != expected:
                problems.append(f"hash {expected} is missing")
                break
            if entry_hash(before, entry) != stored_hash:
                problems.append(f"entry {entry['id']} does not match its hash, number {number}")
                break
            before = stored_hash
    if sums.hashed + sums.waiting != sums.entries:
        missing = f"of {sums.entries} entries, {sums.hashed} are in the hash chain and {sums.waiting} wait for it"
        problems.append(missing)
    if sums.accounts_usd != 0:
        problems.append(f"the accounts sum to {usd(sums.accounts_usd)} instead of zero")
    if sums.rolled_usd + sums.waiting_usd != sums.raw_usd:
        problems.append(f"the rollup says {usd(sums.rolled_usd + sums.waiting_usd)}, the entries {usd(sums.raw_usd)}")
    return Checked(sums.entries, sums.hashed, sums.waiting, sums.raw_usd, before, tuple(problems))


async def summary(ctx: Context, actor: Actor | None = None) -> Summary:
    """Summarize the spending of one person with their programs; without a person, of everybody."""
    lines = await enforcement.overview(ctx, actor)
    async with ctx.db.read() as tx:
        purse = EVERYBODY if actor is None else Purse(await authorization.mine(tx, ctx.policy, actor))
        found = await costs(tx, purse, None)
    return Summary(
        sum((amount for _, amount in found["cloud"]), Decimal(0)),
        tuple((name or SKILL, amount) for name, amount in found["tool"]),
        tuple(found["cloud"]),
        named("owner", found["owner"]),
        tuple(f"{line.key}: {said(line)}" for line in lines),
        ctx.clock.now(),
    )


def as_markdown(found: Summary) -> str:
    """Render the summary as `cost_summary.md`."""
    parts = [f"# Cost summary\n\nTotal spend: **{usd(found.total_usd)}** (as of {found.at:%Y-%m-%d %H:%M} UTC)\n"]
    for title, rows in (("tool", found.tools), ("provider", found.providers), ("owner", found.owners)):
        lines = [f"| {in_markdown(name) or 'none'} | {usd(amount)} |" for name, amount in rows]
        parts.append("\n".join([f"## Per {title}\n", f"| {title} | spent |", "|---|---:|", *lines]) + "\n")
    status = [f"- {in_markdown(line)}" for line in found.budgets] or ["No budget is set."]
    return "\n".join([*parts, "## Budget status\n", *status]) + "\n"


async def manifest(ctx: Context, actor: Actor, *, everybody: bool, endpoints: bool) -> Mapping[str, Any]:
    """Return `instance_manifest.json`: every live instance, of one person or of everybody.

    Connection details are for an instance's owner, and for callers who may see all `endpoints`.
    """
    async with ctx.db.read() as tx:
        own = await authorization.mine(tx, ctx.policy, actor)
        found = await live_instances(tx, None if everybody else own)
        nodes = await nodes_of(tx, [row.id for row, _ in found])
    return {
        "generated_at": ctx.clock.now().isoformat(),
        "instances": [
            {
                "instance_id": row.id,
                "session_id": session.id,
                "owner": session.owner,
                "project": session.label,
                "provider": row.cloud,
                "provider_ref": row.ref,
                "name": row.name,
                "gpu": session.gpu,
                "gpu_count": session.gpu_count,
                "state": str(row.state),
                "status": row.status,
                "price_usd_h": f"{row.price_usd_h:f}",
                "created_at": row.created_at.isoformat(),
                "deadline": session.deadline.isoformat() if session.deadline else None,
                "ssh": _endpoint(row) if endpoints or session.owner in own else None,
                "api": _api(row, nodes.get(row.id)) if endpoints or session.owner in own else None,
            }
            for row, session in found
        ],
    }


def _api(row: Any, node: Node | None) -> dict[str, Any] | None:
    url = api_url(row, node)
    return {"url": url, "certificate_sha256": node.api_certificate} if url is not None and node is not None else None


def _endpoint(row: Any) -> dict[str, Any] | None:
    if not row.ssh_host:
        return None
    port, user = row.ssh_port or 22, row.ssh_user or "root"
    return {"host": row.ssh_host, "port": port, "user": user, "command": ssh_command(row)}
