"""Play the whole demo over HTTP as people would, print a transcript, and check the ledger at the end."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
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
from ledger.queries.audit import read_books

STEP_S = 20.0
ASK = '/gpu provision 1x4090 2h for="a walk without hands"'
WIDTH = 150
SETTLE_ROUNDS, SETTLE_PAUSE_S = 20, 0.25


class WalkFailed(AssertionError):
    """A step of the demo that failed; the message says what was expected."""


@dataclass
class Transcript:
    """Print what happens, with seconds since the start."""

    running: Playground
    out: Console
    step_s: float
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.running.clock.monotonic()

    def say(self, who: str, text: str) -> None:
        """Print one line; what the bot says is cut to one line too."""
        at = self.running.clock.monotonic() - self.started
        line = html.unescape(" ".join(text.split()))
        self.out.print(f"{at:6.2f} s  {who:<16} {line[:WIDTH]}{'…' if len(line) > WIDTH else ''}", markup=False)

    def expect(self, holds: bool, sentence: str) -> None:
        """Raise `WalkFailed` unless `holds`."""
        if not holds:
            raise WalkFailed(sentence)


async def walk(running: Playground, out: Console, step_s: float = STEP_S) -> int:
    """Play the demo: 0 when every step worked and every invariant holds; 1 otherwise, with the reasons printed."""
    transcript = Transcript(running, out, step_s)
    try:
        async with RemoteDriver(running.url) as ws:
            await _play(ws, transcript)
    except (WalkFailed, TimeoutError) as error:
        out.print(f"\nThe walk failed: {error}", style="red", markup=False)
        return 1
    return await _audit(transcript)


async def _play(ws: RemoteDriver, transcript: Transcript) -> None:
    alice, bob, dave = ws.as_("alice"), ws.as_("bob"), ws.as_("dave")
    key = f"/gpu key add {_public_key()}"
    transcript.say("alice types", f"{key[:44]}…")
    transcript.expect((await alice.command(key)).ok, "the key was not taken")
    transcript.say("alice types", ASK)
    answer = await alice.command(ASK)
    transcript.expect(answer.ok, f"the request was not taken: {answer.error}")
    offers = await _wait(ws, transcript, lambda: _with_button(ws, "Approve"))
    transcript.say("bot in #gpu", offers.text)
    transcript.expect("Reject" in " ".join(button_texts(offers)), "the offers have no Reject button")
    approve = next(text for text in button_texts(offers) if text.startswith("Approve"))

    for person in (dave, alice):
        before = len(ws.ephemerals(person.name))
        transcript.say(f"{person.name} clicks", approve)
        await person.click(ws.now(offers), approve)
        refusal = await _wait(ws, transcript, _newer(ws, person.name, before))
        transcript.say(f"bot to {person.name}", refusal.text)
        transcript.expect(bool(button_texts(ws.now(offers))), "a refused click took the buttons away")
    transcript.expect(not running_instances(transcript), "something was rented before anybody approved")

    transcript.say("bob clicks", approve)
    await bob.click(ws.now(offers), approve)
    await ws.until(lambda: not any(t.startswith("Approve") for t in button_texts(ws.now(offers))), transcript.step_s)
    transcript.say("bot in #gpu", ws.now(offers).text)
    ready = await _wait(
        ws, transcript, lambda: next((m for m in ws.dm_messages("alice") if "ssh " in all_text(m)), None)
    )
    transcript.say("bot to alice", ready.text)
    transcript.expect(len(running_instances(transcript)) == 1, "not exactly one instance runs")
    transcript.say("clouds", f"{running_instances(transcript)[0]} runs, and nothing else")

    session = (await read_books(transcript.running.ctx.db)).sessions[-1].id
    transcript.say("alice types", f"/gpu terminate {session}")
    before = len(ws.ephemerals("alice"))
    transcript.expect((await alice.command(f"/gpu terminate {session}")).ok, "the end was not asked for")
    question = await _wait(ws, transcript, _newer(ws, "alice", before))
    transcript.say("bot to alice", question.text)
    transcript.expect(len(running_instances(transcript)) == 1, "something ended before the question was answered")
    transcript.say("alice clicks", "End it now")
    await alice.click(question, "End it now")
    done = await _wait(ws, transcript, lambda: _ended(ws, offers))
    transcript.say("bot in thread", done.text)
    transcript.expect(not running_instances(transcript), "an instance still runs after its end was confirmed")
    transcript.expect(not ws.duplicates(), "a message was shown twice")
    transcript.say("clouds", "nothing runs")


async def _wait(ws: RemoteDriver, transcript: Transcript, look: Callable[[], ChatMessage | None]) -> ChatMessage:
    """Wait for the message that `look` finds; raises TimeoutError with what the screens show."""
    found = await ws.until(look, transcript.step_s)
    if found is None:
        raise TimeoutError("the message was deleted again")
    return found


def running_instances(transcript: Transcript) -> list[str]:
    """Name the instances that the sandbox clouds really run."""
    return [str(item["name"]) for item in transcript.running.truth()["instances"] if item["alive"]]


def _with_button(ws: RemoteDriver, start: str) -> ChatMessage | None:
    return _last(m for m in ws.channel_messages() if any(text.startswith(start) for text in button_texts(m)))


def _newer(ws: RemoteDriver, who: str, before: int) -> Callable[[], ChatMessage | None]:
    def look() -> ChatMessage | None:
        shown = ws.ephemerals(who)
        return shown[-1] if len(shown) > before else None

    return look


def _ended(ws: RemoteDriver, offers: ChatMessage) -> ChatMessage | None:
    return _last(m for m in ws.thread(offers) if re.search(r"\b(gone|ended|over)\b", all_text(m)))


def _last(found: Iterable[ChatMessage]) -> ChatMessage | None:
    return next(iter([*found][-1:]), None)


def _public_key() -> str:
    """Make a fresh public key and drop its private half."""
    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


async def _audit(transcript: Transcript) -> int:
    """Print the booked costs, and check every invariant."""
    running = transcript.running
    found = await violations(running)
    books = await read_books(running.ctx.db)
    transcript.say("ledger", f"{len(books.events)} events, {len(books.entries)} entries")
    for entry in sorted(books.entries, key=lambda e: (e.at, e.id)):
        transcript.say(
            "", f"{entry.kind:<8} ${entry.amount_usd:>10.6f}  {entry.debit} ← {entry.credit} {entry.component}"
        )
    used = [e for e in books.entries if e.kind in (EntryKind.ACCRUE, EntryKind.TRUE_UP, EntryKind.LOSS)]
    spent = sum((-e.amount_usd if e.debit.startswith("payable:") else e.amount_usd for e in used), Decimal(0))
    transcript.say("bill", f"ledger ${spent:.6f}, clouds ${Decimal(running.truth()['total_usd']):.6f}")
    for violation in found:
        transcript.out.print(f"violated: {violation}", style="red", markup=False)
    transcript.out.print("\nEvery invariant holds." if not found else f"\n{len(found)} invariants are violated.")
    return 0 if not found else 1


async def violations(running: Playground) -> list[invariants.Violation]:
    """List broken invariants once the last messages are sent, because a message may be late by a moment."""
    found: list[invariants.Violation] = []
    for _ in range(SETTLE_ROUNDS):
        found = await invariants.check(
            running.ctx.db, running.clock, running.truth(), is_settled=True, secrets=running.secrets
        )
        if not found:
            break
        await running.clock.sleep(SETTLE_PAUSE_S)
    return found
