"""What Slack is answered within three seconds: computed from the payload and the policy alone, nobody is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural
from bot.slack import forms, modals
from bot.slack.blocks import help as help_message
from bot.slack.blocks.elements import Message
from bot.slack.blocks.private_answer import said
from bot.slack.inbound import WITHHELD, InboundKind, InboundMessage

#: The first part of an action id, up to its colon, says what the button does.
BUTTONS: Final = frozenset(
    {"approve", "reject", "change", "terminate", "plan", "keep", "extend", "done", "spare", "held_saved", "held_let_go"}
)

#: Commands that are answered when the clouds have answered.
ASKS_CLOUDS: Final = frozenset({"inventory", "plan", "compare"})

PRIVATE_KEY: Final = (
    "That looks like a private key. It was not stored, but it has now been in Slack: make a new pair "
    "(`ssh-keygen -t ed25519`) and add the `.pub` file."
)
OTHER_TEAM: Final = "Only members of the workspace that installed this app can use it."


@dataclass(frozen=True, slots=True)
class AckPlan:
    """`answer` is acknowledged as it is; `work` is what is processed afterwards, None when the answer is all.

    `parsed` are the words of a command, so that they need not be read again.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    work: InboundMessage | None = None
    parsed: ParsedCommand | None = None


def plan(heard: InboundMessage, policy: Policy, clouds: Sequence[str], command: str, home_team: str | None) -> AckPlan:
    """The acknowledgement of one message. The same payload always gets the same one."""
    if not heard.user:
        return AckPlan()
    foreign = bool(home_team and heard.team and heard.team != home_team)
    if heard.kind is InboundKind.COMMAND:
        return _ephemeral(said(OTHER_TEAM)) if foreign else _command(heard, policy, clouds, command)
    if foreign:
        return AckPlan()
    if heard.kind is InboundKind.ACTION:
        return AckPlan(work=heard if heard.action.partition(":")[0] in BUTTONS else None)
    if heard.kind is InboundKind.VIEW:
        return _view(heard, policy)
    return AckPlan(work=heard if heard.kind is InboundKind.HOME else None)


def _command(heard: InboundMessage, policy: Policy, clouds: Sequence[str], command: str) -> AckPlan:
    if heard.text == WITHHELD:
        return _ephemeral(said(PRIVATE_KEY))
    parsed = parse(heard.text, policy)
    if isinstance(parsed, GrammarError):
        return _ephemeral(help_message.grammar_error(parsed, command))
    if parsed.name == "help":
        return _ephemeral(help_message.overview(command, parsed.target))
    if parsed.name in ASKS_CLOUDS or (parsed.name == "provision" and parsed.job):
        return AckPlan(_asking(parsed, clouds), heard, parsed)
    return AckPlan(work=heard, parsed=parsed)


def _asking(parsed: ParsedCommand, clouds: Sequence[str]) -> dict[str, Any]:
    wanted = parsed.job.candidates if parsed.job else ()
    asked = [cloud for cloud in clouds if not wanted or cloud in wanted]
    return _ephemeral(said(f"Asking {plural(len(asked), 'cloud')}…")).answer


def _view(heard: InboundMessage, policy: Policy) -> AckPlan:
    found: Any = {}
    if heard.view == modals.PROVISION:
        found = forms.read_job(heard.values, policy)
    elif heard.view == modals.REJECT:
        found = forms.read_reason(heard.values, policy)
    elif heard.view == modals.AMOUNT:
        found = forms.read_confirmation(heard.values)
    elif heard.view == modals.CHANGE:
        found = forms.read_change(heard.values, policy)
    elif heard.view == modals.EXTEND:
        found = forms.read_extension(heard.values, policy)
    else:
        return AckPlan()
    if isinstance(found, Mapping):
        return AckPlan({"response_action": "errors", "errors": dict(found)})
    return AckPlan(work=heard)


def _ephemeral(message: Message) -> AckPlan:
    return AckPlan({"response_type": "ephemeral", "text": message.text, "blocks": list(message.blocks)})
