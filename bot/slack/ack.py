"""Plan the acknowledgement that Slack needs within three seconds, from the payload and the policy alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import plural
from bot.slack import forms, modals
from bot.slack.blocks import help as help_message
from bot.slack.blocks.elements import Message
from bot.slack.inbound import WITHHELD, InboundKind, InboundMessage
from bot.slack.web import readable

#: The first part of an action id, up to its colon, says what the button does.
BUTTONS: Final = frozenset(
    {
        "accept", "addkey", "approve", "browse", "cancel", "change", "decline", "details", "done", "extend", "form",
        "grace_give_up", "grace_replace", "grace_wait",
        "held_let_go", "held_saved", "keep", "offer", "offers", "plan", "reject", "revoke", "spare", "terminate",
    }
)  # fmt: skip

#: Commands that are answered when the clouds have answered.
ASKS_CLOUDS: Final = frozenset({"inventory", "plan", "compare"})

PRIVATE_KEY: Final = (
    "That looks like a private key. It was not stored, but it has now been in Slack: make a new pair "
    "(`ssh-keygen -t ed25519`) and add the `.pub` file."
)
OTHER_TEAM: Final = "Only members of the workspace that installed this app can use it."


@dataclass(frozen=True, slots=True)
class AckPlan:
    """The acknowledgement of a message (`answer`), and what is processed afterwards (`work`; None when nothing is).

    `parsed` are the words of a command, so that they need not be parsed again.
    """

    answer: dict[str, Any] = field(default_factory=dict)
    work: InboundMessage | None = None
    parsed: ParsedCommand | None = None


def plan(
    received: InboundMessage, policy: Policy, clouds: Sequence[str], command: str, home_team: str | None
) -> AckPlan:
    """Plan the acknowledgement of one message; the same payload always gets the same one."""
    if not received.user:
        return AckPlan()
    foreign = bool(home_team and received.team and received.team != home_team)
    if received.kind is InboundKind.COMMAND:
        return _ephemeral(Message.of(OTHER_TEAM)) if foreign else _command(received, policy, clouds, command)
    if foreign:
        return AckPlan()
    if received.kind is InboundKind.ACTION:
        return AckPlan(work=received if received.action.partition(":")[0] in BUTTONS else None)
    if received.kind is InboundKind.VIEW:
        return _view(received, policy)
    return AckPlan(work=received if received.kind is InboundKind.HOME else None)


def _command(received: InboundMessage, policy: Policy, clouds: Sequence[str], command: str) -> AckPlan:
    if received.text == WITHHELD:
        return _ephemeral(Message.of(PRIVATE_KEY))
    parsed = parse(received.text, policy)
    if isinstance(parsed, GrammarError):
        return _ephemeral(help_message.grammar_error(parsed, command))
    if parsed.name == "help":
        return _ephemeral(help_message.overview(command, parsed.target, policy.presets))
    if parsed.name in ASKS_CLOUDS or (parsed.name == "provision" and parsed.job):
        return AckPlan(_asking(parsed, clouds), received, parsed)
    return AckPlan(work=received, parsed=parsed)


def _asking(parsed: ParsedCommand, clouds: Sequence[str]) -> dict[str, Any]:
    wanted = parsed.job.candidates if parsed.job else ()
    asked = [cloud for cloud in clouds if not wanted or cloud in wanted]
    return _ephemeral(Message.of(f"Asking {plural(len(asked), 'cloud')}…")).answer


#: Dialog → the reader of its fields, which returns the errors by block.
READERS: Final[Mapping[str, Callable[[Mapping[str, Any], Policy], Any]]] = {
    modals.PROVISION: forms.read_job,
    modals.REJECT: forms.read_reason,
    modals.AMOUNT: lambda values, _: forms.read_confirmation(values),
    modals.CHANGE: forms.read_change,
    modals.OFFERS: lambda values, _: forms.read_offer(values),
    modals.KEY: lambda values, _: forms.read_key(values),
    modals.SECRET: lambda values, _: forms.read_secret(values),
    modals.EXTEND: forms.read_extension,
}


def _view(received: InboundMessage, policy: Policy) -> AckPlan:
    read = READERS.get(received.view)
    if read is None:
        return AckPlan()
    found = read(received.values, policy)
    if isinstance(found, Mapping):
        errors = {block: readable("text", sentence) for block, sentence in found.items()}
        return AckPlan({"response_action": "errors", "errors": errors})
    return AckPlan(work=received)


def _ephemeral(message: Message) -> AckPlan:
    blocks = readable("blocks", list(message.blocks))
    return AckPlan({"response_type": "ephemeral", "text": readable("text", message.text), "blocks": blocks})
