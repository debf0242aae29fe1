"""List the commands of the `/gpu` language in one table, which the reader, the help and the docs use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class CommandShape(StrEnum):
    JOB = "job"
    ID = "id"
    KEY = "key"
    TOPIC = "topic"
    CLOUD = "cloud"
    QUESTION = "question"
    NOTHING = "nothing"
    MORE = "more"
    DONE = "done"
    END = "end"
    CHOICE = "choice"
    DELEGATE = "delegate"
    REASON = "reason"


@dataclass(frozen=True, slots=True)
class Subcommand:
    """Describe one row of the command table. A new command is a new row; a new shape is also a reader in `_READERS`."""

    name: str
    usage: str
    doc: str
    example: str
    shape: CommandShape
    aliases: tuple[str, ...] = ()
    needs_hours: bool = False
    #: What may follow a command of the shape CHOICE; the first is meant when nothing follows.
    choices: tuple[str, ...] = ()


SUBCOMMANDS: tuple[Subcommand, ...] = (
    Subcommand(
        "provision",
        "provision [WORDS]",
        "Ask for GPUs. Without words a form opens.",
        'provision 4xA100-80GB 6h max=$50 for="fine-tune"',
        CommandShape.JOB,
        ("rent", "request"),
        needs_hours=True,
    ),
    Subcommand(
        "inventory",
        "inventory [WORDS] [sort=KEY]",
        "What is for sale now.",
        "inventory 4090 region=US sort=price",
        CommandShape.JOB,
        ("offers",),
    ),
    Subcommand(
        "plan",
        "plan WORDS",
        "What a run needs, takes and costs on every offer; nothing is rented.",
        "plan model=7B tokens=2B seq=2048 batch=512 precision=bf16 goal=24h",
        CommandShape.JOB,
    ),
    Subcommand(
        "compare",
        "compare [WORDS]",
        "Dollars per run and runs per budget on every GPU for sale.",
        "compare budget=500 hours=1",
        CommandShape.QUESTION,
    ),
    Subcommand("list", "list", "Your open requests and running machines.", "list", CommandShape.NOTHING, ("ls",)),
    Subcommand("status", "status ID", "One request or machine in detail.", "status 4k7m2p", CommandShape.ID),
    Subcommand(
        "terminate",
        "terminate ID [now]",
        "End a machine: asks first what you mean, with its cost; `now` does not ask.",
        "terminate 4k7m2p",
        CommandShape.END,
        ("destroy", "kill"),
    ),
    Subcommand(
        "extend",
        "extend ID HOURS [REASON]",
        "More time for a machine; what was not approved yet is asked for.",
        'extend 4k7m2p 2h for="one more epoch"',
        CommandShape.MORE,
        ("more",),
    ),
    Subcommand(
        "done",
        "done ID [success|failed] [destroy|preserve]",
        "The work is done: end the machine, or stop it and keep its disk until its end.",
        "done 4k7m2p success destroy",
        CommandShape.DONE,
        ("finish",),
    ),
    Subcommand(
        "stop", "stop ID", "Stop a machine where that saves money; its disk stays.", "stop 4k7m2p", CommandShape.ID
    ),
    Subcommand("start", "start ID", "Start a stopped machine.", "start 4k7m2p", CommandShape.ID),
    Subcommand("restart", "restart ID", "Restart a machine in place.", "restart 4k7m2p", CommandShape.ID, ("reboot",)),
    Subcommand("cancel", "cancel ID", "Withdraw a request that is not decided.", "cancel 4k7m2p", CommandShape.ID),
    Subcommand("why", "why ID", "Why a request needs approval, and who may give it.", "why 4k7m2p", CommandShape.ID),
    Subcommand(
        "delegate",
        "delegate @WHO until DAY, delegate list, delegate off",
        "Let one person decide in your place through a day (UTC), see who does, or take it back at once.",
        "delegate U012AB3CD until 2026-12-01",
        CommandShape.DELEGATE,
    ),
    Subcommand(
        "break-glass",
        "break-glass ID REASON",
        "Start your own request without an approval, where the policy names you; everybody who decides is told.",
        'break-glass 4k7m2p for="the demo is down"',
        CommandShape.REASON,
    ),
    Subcommand("audit", "audit ID", "What happened to a request or machine, sealed.", "audit 4k7m2p", CommandShape.ID),
    Subcommand("budget", "budget", "What your budgets still allow.", "budget", CommandShape.NOTHING, ("budgets",)),
    Subcommand(
        "costs",
        "costs [daily|hourly|monthly|total|summary]",
        "What was spent: this month by the day, 24 hours, 12 months, everything, or a summary with other tools' costs.",
        "costs monthly",
        CommandShape.CHOICE,
        ("cost", "spend"),
        choices=("daily", "hourly", "monthly", "total", "summary"),
    ),
    Subcommand(
        "key",
        "key add PUBLIC-KEY, key list, key remove",
        "The public SSH key that your machines get.",
        "key add ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqP8b2rH1 ada@laptop",
        CommandShape.KEY,
    ),
    Subcommand("profile", "profile CLOUD", "What stops the meter at a cloud.", "profile runpod", CommandShape.CLOUD),
    Subcommand(
        "help", "help [COMMAND]", "This list, or one command in detail.", "help provision", CommandShape.TOPIC, ("?",)
    ),
)
BY_NAME: Mapping[str, Subcommand] = {name: sub for sub in SUBCOMMANDS for name in (sub.name, *sub.aliases)}
#: What may follow the id of `done`: the word → which field of the command it sets, and to what.
DONE_WORDS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("success", "succeeded", "ok"), ("action", "success")),
    **dict.fromkeys(("failed", "failure"), ("action", "failed")),
    **dict.fromkeys(("destroy", "delete"), ("text", "destroy")),
    **dict.fromkeys(("preserve", "keep"), ("text", "preserve")),
}
