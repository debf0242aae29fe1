"""The whole walk through the same HTTP doors that people use, with a transcript, and the audit at its end."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from rich.console import Console

from bot.cli.demo.demo_stack import Playground
from bot.practice.model import ChatMessage
from bot.practice.reader import all_text, button_texts
from bot.practice.remote import RemoteDriver
from bot.services.audit import invariants
from ledger.kernel.entry_kind import EntryKind
from ledger.queries.audit import Books, read_books

STEP_S = 20.0
ASK = '/gpu provision 1x4090 2h for="a walk without hands"'
WIDTH = 150
SETTLE_ROUNDS, SETTLE_PAUSE_S = 20, 0.25


class WalkFailed(AssertionError):
    """The walk did not go as it must; the message says what was expected at which step."""


@dataclass
class Transcript:
    """What happens, with seconds since the start."""

    running: Playground
    out: Console
    step_s: float
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.running.clock.monotonic()

    def say(self, who: str, text: str) -> None:
        """One line; what the bot says is cut to one line too."""
        at = self.running.clock.monotonic() - self.started
        line = html.unescape(" ".join(text.split()))
        self.out.print(f"{at:6.2f} s  {who:<16} {line[:WIDTH]}{'…' if len(line) > WIDTH else ''}", markup=False)

    def expect(self, holds: bool, sentence: str) -> None:
        """Raise `WalkFailed` unless it holds."""
        if not holds:
            raise WalkFailed(sentence)


async def walk(running: Playground, out: Console, step_s: float = STEP_S) -> int:
    """0 when every step went as it must and every invariant holds; 1 otherwise, with the reasons printed."""
    told = Transcript(running, out, step_s)
    try:
        async with RemoteDriver(running.url) as ws:
            await _play(ws, told)
    except (WalkFailed, TimeoutError) as error:
        out.print(f"\nThe walk failed: {error}", style="red", markup=False)
        return 1
    return await _audit(told)


async def _play(ws: RemoteDriver, told: Transcript) -> None:
    alice, bob, dave = ws.as_("alice"), ws.as_("bob"), ws.as_("dave")
    key = f"/gpu key add {_public_key()}"
    told.say("alice types", f"{key[:44]}…")
    told.expect((await alice.command(key)).ok, "the key was not taken")
    told.say("alice types", ASK)
    asked = await alice.command(ASK)
    told.expect(asked.ok, f"the request was not taken: {asked.error}")
    offers = await _wait(ws, told, lambda: _with_button(ws, "Approve"))
    told.say("bot in #gpu", offers.text)
    told.expect("Reject" in " ".join(button_texts(offers)), "the offers have no Reject button")
    approve = next(text for text in button_texts(offers) if text.startswith("Approve"))

    for person in (dave, alice):
        before = len(ws.ephemerals(person.name))
        told.say(f"{person.name} clicks", approve)
        await person.click(ws.now(offers), approve)
        refusal = await _wait(ws, told, _newer(ws, person.name, before))
        told.say(f"bot to {person.name}", refusal.text)
        told.expect(bool(button_texts(ws.now(offers))), "a refused click took the buttons away")
    told.expect(not running_instances(told), "something was rented before anybody approved")

    told.say("bob clicks", approve)
    await bob.click(ws.now(offers), approve)
    await ws.until(lambda: not any(t.startswith("Approve") for t in button_texts(ws.now(offers))), told.step_s)
    told.say("bot in #gpu", ws.now(offers).text)
    ready = await _wait(ws, told, lambda: _dm(ws, "ssh "))
    told.say("bot to alice", ready.text)
    told.expect(len(running_instances(told)) == 1, "not exactly one instance runs")
    told.say("clouds", f"{running_instances(told)[0]} runs, and nothing else")

    session = _session_id(await read_books(told.running.ctx.db))
    told.say("alice types", f"/gpu terminate {session}")
    before = len(ws.ephemerals("alice"))
    told.expect((await alice.command(f"/gpu terminate {session}")).ok, "the end was not asked for")
    question = await _wait(ws, told, _newer(ws, "alice", before))
    told.say("bot to alice", question.text)
    told.expect(len(running_instances(told)) == 1, "something ended before the question was answered")
    told.say("alice clicks", "End it now")
    await alice.click(question, "End it now")
    done = await _wait(ws, told, lambda: _ended(ws, offers))
    told.say("bot in thread", done.text)
    told.expect(not running_instances(told), "an instance still runs after its end was confirmed")
    told.expect(not ws.duplicates(), "a message was shown twice")
    told.say("clouds", "nothing runs")


async def _wait(ws: RemoteDriver, told: Transcript, look: Callable[[], ChatMessage | None]) -> ChatMessage:
    """The message that `look` finds; TimeoutError, with what is on the screens, when it never does."""
    found = await ws.until(look, told.step_s)
    if found is None:
        raise TimeoutError("the message was taken away again")
    return found


def running_instances(told: Transcript) -> list[str]:
    """The names of what really runs, by the clouds' own account."""
    return [str(item["name"]) for item in told.running.truth()["instances"] if item["alive"]]


def _with_button(ws: RemoteDriver, start: str) -> ChatMessage | None:
    found = [m for m in ws.channel_messages() if any(text.startswith(start) for text in button_texts(m))]
    return found[-1] if found else None


def _newer(ws: RemoteDriver, who: str, before: int) -> Callable[[], ChatMessage | None]:
    def look() -> ChatMessage | None:
        told = ws.ephemerals(who)
        return told[-1] if len(told) > before else None

    return look


def _dm(ws: RemoteDriver, word: str) -> ChatMessage | None:
    return next((m for m in ws.dm_messages("alice") if word in all_text(m)), None)


def _ended(ws: RemoteDriver, offers: ChatMessage) -> ChatMessage | None:
    found = [m for m in ws.thread(offers) if re.search(r"\b(gone|ended|over)\b", all_text(m))]
    return found[-1] if found else None


def _session_id(books: Books) -> str:
    return books.sessions[-1].id


def _public_key() -> str:
    """A fresh public key; its private half is forgotten at once."""
    public = Ed25519PrivateKey.generate().public_key()
    line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    base64.b64decode(line.split()[1], validate=True)
    return line


async def _audit(told: Transcript) -> int:
    """The ledger as booked, and every rule that must hold."""
    running = told.running
    found = await violations(running)
    books = await read_books(running.ctx.db)
    told.say("ledger", f"{len(books.events)} events, {len(books.entries)} entries")
    for entry in sorted(books.entries, key=lambda e: (e.at, e.id)):
        told.say("", f"{entry.kind:<8} ${entry.amount_usd:>10.6f}  {entry.debit} ← {entry.credit} {entry.component}")
    used = [e for e in books.entries if e.kind in (EntryKind.ACCRUE, EntryKind.TRUE_UP, EntryKind.LOSS)]
    spent = sum((-e.amount_usd if e.debit.startswith("payable:") else e.amount_usd for e in used), Decimal(0))
    told.say("bill", f"ledger ${spent:.6f}, clouds ${Decimal(running.truth()['total_usd']):.6f}")
    for violation in found:
        told.out.print(f"violated: {violation}", style="red", markup=False)
    told.out.print("\nEvery invariant holds." if not found else f"\n{len(found)} invariants are violated.")
    return 0 if not found else 1


async def violations(running: Playground) -> list[invariants.Violation]:
    """The audit, once the last messages are out: what is only late by a moment is not a violation."""
    found: list[invariants.Violation] = []
    for _ in range(SETTLE_ROUNDS):
        found = await invariants.check(
            running.ctx.db, running.clock, running.truth(), is_settled=True, secrets=running.secrets
        )
        if not found:
            break
        await running.clock.sleep(SETTLE_PAUSE_S)
    return found
