"""Build the direct messages to a session's owner: the session is ready, the session has ended."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from urllib.parse import quote

from bot.rules.billing.end_times import KnownEnd
from bot.rules.checkpoints.verification import NOTHING_PROTECTS
from bot.rules.instances.checked_gpus import checked_gpus
from bot.rules.jobs.job_text import machine
from bot.rules.jobs.stored import job_of
from bot.rules.values.phrases import hours, rate, unreconciled, unsure_end
from bot.services.nodes.connection import known_hosts, ssh_command
from bot.services.nodes.ports import AskedPort, ports_of
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
from bot.slack.blocks.progress import ran_for
from ledger.kernel.states import SessionState
from ledger.kernel.volume_name import volume_of
from ledger.models import Instance, Session
from ledger.queries.views import SessionView
from providers.capabilities import Capabilities

TERMINATE = "terminate"
EXTEND = "extend"
#: The hours that the button *Keep* adds.
KEEP_HOURS = Decimal(1)
GOES_ON = "Its cloud can't end it: it runs until it finishes, reaches its timeout, or you end it on the cloud's page."


def ready(view: SessionView, command: str, able: Capabilities | None = None, *, keyless: bool = False) -> Message:
    """Say how to connect, what it costs, when it ends and how to end it before; `command` is the slash command.

    `able` says what its cloud can do; None assumes everything. `keyless`: its owner has no SSH key here.
    """
    session, row = view.session, view.instance
    if row is None:
        return Message(f"Your {what(session)} is ready.", (section(f"Your *{what(session)}* is ready."),))
    lead = f"Your *{what(session)}* at {safe(row.cloud, 40)} is ready."
    lines = [f"Connect: {code(ssh_command(row), 400)}"] if row.ssh_host else [_no_address(able, session)]
    if row.ssh_host and keyless:
        add = code(f"{command} key add ssh-ed25519 AAAA…")
        lines.append(f"You can't log in, because you have no SSH key here. To add one: {add}")
    lines += gpus(row)
    lines += other_machines(view)
    lines += port_lines(view)
    if row.ssh_host and not job_of(view.request.job).checkpoint:
        lines.append(NOTHING_PROTECTS)
    lines.append(f"Cost: {rate(view.price_usd_h)}")
    if session.deadline:
        lines.append(f"Ends: {when(session.deadline)} (approved for at most {hours(Decimal(session.hours))})")
        lines.append(f"More time: {code(f'{command} extend {session.short_id} 1h')}")
    ending = f"To end it earlier: the button, or {code(f'{command} terminate {session.short_id}')}."
    ending += " All data on it is deleted then." if volume_of(session.gpu) else ""
    can_extend = session.deadline is not None and (able is None or not able.batch)
    buttons = [*([more_button(session)] if can_extend else []), end_button(session)]
    if able is not None and not able.terminate:
        ending, buttons = GOES_ON, []
    buttons += [details_button(session)] if row.ssh_host else []
    end = (actions(*buttons),) if buttons else ()
    text = f"{lead} {' · '.join(lines)}. {ending}"
    return Message(text, (section(f":rocket: {lead}"), section("\n".join(lines)), context(ending), *end))


def ready_again(view: SessionView, *, changed: bool) -> Message:
    """Say that a machine which was stopped is ready again, and how to connect; `changed`: at another address."""
    session, row = view.session, view.instance
    how = "Ready again; the address changed" if changed else "Ready again"
    where = f": {code(ssh_command(row), 400)}" if row is not None and row.ssh_host else ""
    ends = f" Ends {when(session.deadline)}." if session.deadline else ""
    text = f":rocket: {how}{where}"
    about = f"Your {what(session)}.{ends}"
    return Message(f"{text}. {about}", (section(text), context(about), actions(details_button(session))))


def ready_while_stopped(session: Session, command: str) -> Message:
    """Build what a ready message says while its machine is stopped: nothing answers there."""
    start = code(f"{command} start {session.short_id}")
    return Message.of(f"Your *{what(session)}* is stopped, so only its disk is billed. To start it: {start}.")


def other_machines(view: SessionView) -> list[str]:
    """Say how to reach the other machines of a set."""
    places = [(one.node_rank or 0, one) for one, _ in view.others if one.ssh_host and one.ended_at is None]
    return [f"Machine {rank + 1}: {code(ssh_command(one), 400)}" for rank, one in places]


def gpus(row: Instance) -> list[str]:
    """Say which GPUs were found on the machine, and when; nothing where nobody logged in."""
    found = checked_gpus(row.gpu_check)
    return [f"{safe(found.line)}, checked {when(found.at)}"] if found is not None else []


def ready_for_others(view: SessionView, able: Capabilities | None = None) -> Message:
    """Say how to log in to somebody with whom a machine is shared, without the buttons of its owner."""
    session, row = view.session, view.instance
    where = f" at {safe(row.cloud, 40)}" if row is not None else ""
    lead = f"The *{what(session)}* that {person(session.owner)} shares with you{where} is ready."
    lines = [
        f"Connect: {code(ssh_command(row), 400)}" if row is not None and row.ssh_host else _no_address(able, session)
    ]
    lines += port_lines(view)
    lines += [f"Ends: {when(session.deadline)}"] if session.deadline else []
    ids = context(f"Session {code(session.short_id)}")
    return Message(f"{lead} {' · '.join(lines)}", (section(f":rocket: {lead}"), section("\n".join(lines)), ids))


def port_lines(view: SessionView) -> list[str]:
    """Say where the ports that the job asked for are reached; a tunnel where the cloud opens none."""
    ports = ports_of(job_of(view.request.job), view.instance)
    said = [f"Port {one.port.number}: {_address(one)}" for one in ports if one.address]
    tunnels = [one.port.number for one in ports if not one.address]
    if tunnels:
        named = f"Port{'s' * (len(tunnels) > 1)} {', '.join(map(str, tunnels))}"
        by = code(f"gpu-shopper open {view.session.short_id} {tunnels[0]}")
        said.append(f"{named}: through a tunnel, {by} in a terminal")
    return said


def _address(one: AskedPort) -> str:
    return f"<{safe(one.address, 300)}>" if one.address.startswith("http") else code(one.address, 300)


def ready_after_end(session: Session, *, again: bool = False) -> Message:
    """Build the line that remains of the ready message of a session that has ended; its total is in the end message.

    `again`: of the message that it was ready again after a stop.
    """
    if again:
        return Message.of(f"Your *{what(session)}* was ready again.")
    took = f"ran {ran_for(session)}" if ran_for(session) else "has ended"
    return Message.of(f"Your *{what(session)}* {took}.")


def warning_after_end(session: Session) -> Message:
    """Build the line that remains of a warning about a session that has ended.

    It has no total: the end message says it in the owner's messages, and the request's card in the channel.
    """
    return Message.of(f"The *{what(session)}* of {person(session.owner)} has ended.")


def is_over(session: Session) -> bool:
    """Whether a session has ended, so that nothing about it lies ahead."""
    return session.state in (SessionState.TERMINATED, SessionState.FAILED)


def known(row: Instance) -> str:
    """Return the known_hosts line with which `ssh` trusts the first connection, where there is one."""
    line = known_hosts(row)
    return f" · for `known_hosts`: {code(line, 1_200)}" if line else ""


def _no_address(able: Capabilities | None, session: Session) -> str:
    if name := volume_of(session.gpu):
        path = able.volume_path.format(name) if able is not None else ""
        return f"Mount it with {code(f'volume={name}')} in a request. Machines find it at {code(path)}."
    if able is None or able.ssh:
        return "The cloud reports no SSH address."
    return "It runs your command. There is no SSH, so its GPUs are not checked."


def ended(
    view: SessionView,
    cost_usd: Decimal,
    able: Capabilities | None = None,
    between: tuple[Decimal, Decimal] | None = None,
    end: KnownEnd | None = None,
) -> Message:
    """Say that the session ended, why, and its cost: dollars, or hours of the quota at a free cloud.

    `between` is the least and most that it can have cost where the cloud never reports it; `end` is when its machine
    ended, where nobody saw that.
    """
    session = view.session
    failed = session.state is SessionState.FAILED
    verb = "failed" if failed else "ended"
    why = f" {safe(session.end_reason, SENTENCE_MAX)}" if session.end_reason else ""
    cost = f"Total: {dollars(cost_usd)}." if cost_usd or not failed else "It cost nothing."
    if between is not None:
        cost += f" {safe(unreconciled(*between))}"
    if able is not None and able.free:
        cost = _free_hours(view.instance)
    text = f"{':x:' if failed else ':checkered_flag:'} Your *{what(session)}* {verb}.{why} {cost}"
    text += unsure(view.instance, end)
    text += _page(view.instance, able)
    at = [context(f"Ended {when(session.ended_at)} · session {code(session.short_id)}")] if session.ended_at else []
    return Message(text, (section(text), *at))


def unsure(row: Instance | None, end: KnownEnd | None) -> str:
    """Say when a machine ended that nobody saw end, after a space; "" where that is known."""
    if row is None or end is None:
        return ""
    return " " + unsure_end(when(end.likely), when(end.earliest), when(end.latest), row.unsettled_usd)


def _page(row: Instance | None, able: Capabilities | None) -> str:
    """Say where people see what a run left, at clouds that have such a page."""
    if able is None or not able.page_url or row is None or not row.ref:
        return ""
    parts = [quote(part, safe="") for part in row.ref.split("/")]
    if len(parts) < able.page_url.count("{"):
        return ""
    where = able.page_url.format(*parts)
    return f" Its results are on <{where}|its page>."


def _free_hours(row: Instance | None) -> str:
    """Say how much of its quota a free run used, as far as its start and end are known."""
    if row is None or row.billing_from is None or row.billing_until is None:
        return "It cost nothing."
    used_h = Decimal(str((row.billing_until - row.billing_from) / timedelta(hours=1)))
    return f"It cost nothing and used about {hours(max(used_h, Decimal(0)))} of the quota."


def end_button(session: Session, value: str = "", *, label: str = "", over: str = "") -> Block:
    """Build the button *End it now* with its question, for the session or the end that `value` names."""
    short, lost = session.short_id, over or f"{what(session)} ends and its disk is deleted."
    question = confirm("End this session?", lost, "End it", is_danger=True)
    label = label or f"End session {short}"
    mark = value or session.id
    return button("End it now", f"{TERMINATE}:{short}", mark, style="danger", label=label, confirm=question)


def more_button(session: Session, mark: str = "") -> Block:
    """Build the button *More time…*, for the end that `mark` names; without it, for the end as it is at the click."""
    short = session.short_id
    return button("More time…", f"{EXTEND}:{short}", mark or session.id, label=f"Ask for more time for session {short}")


def details_button(session: Session) -> Block:
    """Build the button that shows the host key, what ends the session and what its agent reports."""
    short = session.short_id
    return button("Details", f"details:{short}", session.id, label=f"Details of session {short}")


def what(session: Session) -> str:
    """Describe the GPUs, escaped: `4× A100-80GB`, `2 machines of 4× A100-80GB`."""
    return safe(machine(session.nodes, session.gpu_count, session.gpu), 100)
