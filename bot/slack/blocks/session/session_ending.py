"""Build the warnings before the end of a session: what ends when and why, its cost, what is lost, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from bot.rules.sessions.expiration import left
from bot.rules.values.phrases import hours
from bot.rules.values.state_text import state_words
from bot.services.sessions.service import Stakes
from bot.slack.blocks.elements import (
    SENTENCE_MAX,
    Block,
    Message,
    actions,
    button,
    code,
    confirm,
    context,
    dollars,
    person,
    safe,
    section,
    when,
)
from bot.slack.blocks.session.session_ready_and_ended import (
    EXTEND,
    GOES_ON,
    KEEP_HOURS,
    end_button,
    is_over,
    warning_after_end,
    what,
)
from ledger.kernel.states import ENDABLE_SESSION, SessionState
from ledger.models import Instance, Session
from ledger.queries.views import SessionView
from providers.profiles.model import ProfileError, load

KEEP: Final = "keep"
DONE: Final = "done"
SPARE: Final = "spare"


@dataclass(frozen=True, slots=True)
class Ending:
    """Facts of a warning. `end_s` is the end that it announces, in seconds since 1970; the end may have moved since.

    `why` says which limit is reached then; `cap_usd` is what is approved in all; `inside` whether one more hour fits in
    it; `waiting` whether a request for more time is open; `can_end` whether a call to the cloud ends it.
    """

    view: SessionView
    end_s: int
    cost_usd: Decimal
    cap_usd: Decimal
    why: str
    inside: bool
    waiting: bool
    can_end: bool = True


def ending(shown: Ending, command: str, now: datetime) -> Message:
    """Build the warning, or the sentence about its outcome; `command` is the slash command."""
    moved = _moved(shown)
    if moved is not None:
        return moved
    session, row = shown.view.session, shown.view.instance
    end = session.deadline or now
    if session.preserve and session.state is SessionState.STOPPED:
        disk = shown.view.disk
        kept = f"is stopped, and its disk is deleted {when(disk.until)}" if disk else "is stopped, and its disk is kept"
        return Message.of(f":floppy_disk: The *{what(session)}* of {person(session.owner)} {kept}.")
    at = f" at {safe(row.cloud, 40)}" if row else ""
    lead = f":hourglass: The *{what(session)}*{at} of {person(session.owner)} ends {when(end)} ({left(end, now)})."
    taken = lost(row) if shown.can_end else ""
    facts = stakes(shown.why, (shown.cost_usd, shown.cap_usd), taken, waiting=shown.waiting)
    short = session.short_id
    hint = f"Or type {code(f'{command} extend {short} 2h')} or {code(f'{command} done {short}')}."
    return before_end(lead, facts, _buttons(shown) if shown.can_end else [], hint)


def stakes(why: str, amounts: tuple[Decimal, Decimal], over: str, *, waiting: bool = False) -> list[str]:
    """List what every warning says: why, the `(cost so far, most in all)` dollars, what is lost (`over`).

    `over` is empty where no call can end the machine. `waiting`: a request for more time is open.
    """
    found = [f"*Why*: {safe(why, SENTENCE_MAX)}"] if why else []
    found.append(f"*Cost so far*: {dollars(amounts[0])} of at most {dollars(amounts[1])}.")
    found.append(over or GOES_ON)
    if waiting:
        found.append("Your request for more time waits for an approval. Until then, the session still ends then.")
    return found


def before_end(lead: str, facts: Sequence[str], buttons: Sequence[Block], hint: str) -> Message:
    """Build a warning: what ends when, what is at stake, the buttons, and the commands that do the same."""
    blocks = (section(lead), section("\n".join(facts)), *([actions(*buttons)] if buttons else ()), context(hint))
    return Message(" ".join([lead, *facts, hint]), blocks)


def lost(row: Instance | None) -> str:
    """Say what is deleted with an instance, from its cloud's profile, and what to do about it."""
    try:
        over = load(row.cloud).over if row else ""
    except ProfileError:
        over = ""
    return f"{safe(over, SENTENCE_MAX) or 'Its disk will be deleted.'} Save what you need first."


def final_warning(shown: Ending, now: datetime) -> Message:
    """Build the final warning, a message of its own because an edit notifies nobody."""
    if is_over(shown.view.session):
        return Message.of("It has ended.")  # The warning above, which this one refers to, says what.
    moved = _moved(shown)
    if moved is not None:
        return moved
    session = shown.view.session
    end = session.deadline or now
    text = f":rotating_light: Final warning: the *{what(session)}* of {person(session.owner)} ends {when(end)}."
    return Message(f"{text} The buttons are in the message above.", (section(text), context("The buttons are above.")))


def _moved(shown: Ending) -> Message | None:
    """Say that the announced end no longer applies; None while it does."""
    session = shown.view.session
    if is_over(session):
        return warning_after_end(session)
    if session.state not in ENDABLE_SESSION:
        text = f"The *{what(session)}* is ending."
    elif session.deadline is None:
        text = f"The *{what(session)}* failed, and its request has new offers to approve."
    elif int(session.deadline.timestamp()) != shown.end_s:
        text = f":white_check_mark: The *{what(session)}* now ends {when(session.deadline)}."
    else:
        return None
    return Message.of(text)


def _buttons(shown: Ending) -> list[Block]:
    session = shown.view.session
    mark, short = f"{session.id}/{shown.end_s}", session.short_id
    more = hours(KEEP_HOURS)
    if shown.inside:
        first = button(f"Keep {more}", f"{KEEP}:{short}", mark, style="primary", label=f"Keep session {short} {more}")
    else:
        label = f"Ask for more time for session {short}"
        first = button("Ask for more time…", f"{EXTEND}:{short}", mark, style="primary", label=label)
    return [first, done_button(session, mark), stop_button(session, mark)]


def done_button(session: Session, mark: str) -> Block:
    """Build the button *It is done*, for the end that `mark` names."""
    short = session.short_id
    question = confirm("Is the work done?", f"{what(session)} ends and its disk is deleted.", "It is done")
    return button("It is done", f"{DONE}:{short}", mark, label=f"The work of session {short} is done", confirm=question)


def stop_button(session: Session, mark: str) -> Block:
    """Build the button *End it now*, for the end that `mark` names."""
    return end_button(session, mark, label=f"End session {session.short_id} now")


def end_question(stakes: Stakes, now: datetime) -> Message:
    """Ask before a typed end: the session, its cost, what is lost, and the button that ends it."""
    session = stakes.view.session
    text = f":question: End {code(session.short_id)} now? {_at_stake(stakes, now)}"
    summary = f"{what(session)}{_where(stakes)} has cost {dollars(stakes.cost_usd)} so far. {stakes.lost}".rstrip()
    return Message(
        text,
        (
            section(text),
            actions(end_button(session, over=summary)),
            context("Nothing changes until you click."),
        ),
    )


def done_question(stakes: Stakes, how: str, now: datetime) -> Message:
    """Ask what becomes of the disk of a session whose work has ended; `how` is `success` or `failed`.

    The buttons act at once: this message is their question.
    """
    session, short = stakes.view.session, stakes.view.session.short_id
    over = "failed" if how == "failed" else "is done"
    action, label = f"{DONE}:{short}:{how}", f"The work of session {short} {over}"
    ends = button("Delete the disk and end", f"{action}:destroy", session.id, style="danger", label=f"{label}; end it")
    keeps = button("Keep the disk", f"{action}:preserve", session.id, label=f"{label}; keep its disk")
    hint = "Nothing changes until you click."
    if stakes.keeps_disk:
        hint += " *Keep the disk* stops the GPU. Then you pay only for the disk."
    text = f":question: The work of {code(short)} {over}: end it? {_at_stake(stakes, now)}"
    buttons = [ends, *([keeps] if stakes.keeps_disk else [])]
    return Message(text, (section(text), actions(*buttons), context(hint)))


def _where(stakes: Stakes) -> str:
    row = stakes.view.instance
    return f" at {safe(row.cloud, 30)}" if row is not None else ""


def _at_stake(stakes: Stakes, now: datetime) -> str:
    """Say which session a typed end is about, its cost, its time left and what is lost."""
    session = stakes.view.session
    whose = f"*{what(session)}*{_where(stakes)} of {person(session.owner)}"
    parts = [whose, state_words(session.state), f"{dollars(stakes.cost_usd)} so far"]
    if session.deadline is not None:
        parts.append(left(session.deadline, now))
    return f"{' · '.join(parts)}. {safe(stakes.lost, 600)}".rstrip()


@dataclass(frozen=True, slots=True)
class IdleWarningFacts:
    """Facts of an idle warning: `end_s` is the end that it announces, `cap_usd` what is approved in all."""

    view: SessionView
    end_s: int
    cost_usd: Decimal
    cap_usd: Decimal


def idle_warning(shown: IdleWarningFacts, now: datetime) -> Message:
    """Build the warning, or the sentence about its outcome."""
    session, row = shown.view.session, shown.view.instance
    if is_over(session):
        return warning_after_end(session)
    if session.state not in ENDABLE_SESSION:
        return Message.of(f"The *{what(session)}* is ending.")
    if session.early_end_at is None or int(session.early_end_at.timestamp()) != shown.end_s:
        ends = f" Its approved end is {when(session.deadline)}." if session.deadline else ""
        return Message.of(f":white_check_mark: The *{what(session)}* keeps running.{ends}")
    at = f" at {safe(row.cloud, 40)}" if row else ""
    end = session.early_end_at
    lead = f":zzz: The *{what(session)}*{at} of {person(session.owner)} ends {when(end)} ({left(end, now)})."
    facts = stakes(session.early_end_reason or "", (shown.cost_usd, shown.cap_usd), lost(row))
    mark, short = f"{session.id}/{shown.end_s}", session.short_id
    keep = button("Keep 1 h", f"{SPARE}:{short}", mark, style="primary", label=f"Keep session {short} for one hour")
    hint = "*Keep* never goes beyond its approved end and amount."
    return before_end(lead, facts, [keep, done_button(session, mark), stop_button(session, mark)], hint)
