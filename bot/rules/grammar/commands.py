"""List the commands of the `/gpu` language in one table, which the reader, the help and the docs use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bot.rules.nodes.machine_logs import LogSource


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
    MAYBE_ID = "maybe_id"
    DELEGATE = "delegate"
    REASON = "reason"
    LOGS = "logs"
    SHARE = "share"
    TRANSFER = "transfer"
    MIGRATE = "migrate"
    VOLUME = "volume"
    SECRET = "secret"  # noqa: S105 # The name of a command.


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
        "Request GPUs. Without words, a form opens.",
        'provision 4xA100-80GB 6h max=$50 for="fine-tune"',
        CommandShape.JOB,
        ("rent", "request"),
        needs_hours=True,
    ),
    Subcommand(
        "inventory",
        "inventory [WORDS] [sort=KEY]",
        "List what is for sale now.",
        "inventory 4090 US sort=price",
        CommandShape.JOB,
        ("offers",),
    ),
    Subcommand(
        "plan",
        "plan WORDS",
        "Plan a training run: memory, time and cost for every offer. A budget alone asks which model it trains. Rents "
        "nothing.",
        "plan 7B tokens=2B goal=24h",
        CommandShape.JOB,
    ),
    Subcommand(
        "compare",
        "compare [WORDS]",
        "Compare the cost of the same work, or of runs by the hour and the runs per budget, for every GPU for sale.",
        "compare model=7B tokens=2B",
        CommandShape.QUESTION,
    ),
    Subcommand(
        "list",
        "list [team]",
        "List your open requests and sessions. Approvers list everybody's sessions with `team`.",
        "list",
        CommandShape.CHOICE,
        ("ls",),
        choices=("mine", "team"),
    ),
    Subcommand(
        "history",
        "history [team]",
        "List your sessions that ended. Approvers list everybody's with `team`.",
        "history",
        CommandShape.CHOICE,
        choices=("mine", "team"),
    ),
    Subcommand("status", "status ID", "Show one request or session in detail.", "status 4k7m2p", CommandShape.ID),
    Subcommand(
        "logs",
        "logs ID [job|startup|agent|serve]",
        "Show the end of a log on a session's machine.",
        "logs 4k7m2p",
        CommandShape.LOGS,
        choices=tuple(LogSource),
    ),
    Subcommand(
        "terminate",
        "terminate ID [now]",
        "End a session and delete its disk. It shows the cost and asks first; `now` skips that.",
        "terminate 4k7m2p",
        CommandShape.END,
        ("destroy", "kill"),
    ),
    Subcommand(
        "extend",
        "extend ID HOURS [REASON]",
        "Get more time for a session. Time beyond the approval needs a new approval.",
        "extend 4k7m2p 2h one more epoch",
        CommandShape.MORE,
        ("more",),
    ),
    Subcommand(
        "migrate",
        "migrate ID [to OFFER|CLOUD|cheaper]",
        "Move your run to another machine, step by step, after an approval. It needs `run=` and `checkpoint=`.",
        "migrate 4k7m2p to cheaper",
        CommandShape.MIGRATE,
        ("move",),
    ),
    Subcommand(
        "volume",
        "volume create NAME SIZE [cloud=CLOUD] [region=PLACE] [for=TIME] [REASON], volume list, "
        "volume extend NAME TIME [REASON], volume delete NAME",
        "Keep data on a network volume that outlives your machines, after an approval. It costs money all the time, "
        "and is deleted at its end. `volume=NAME` mounts it.",
        "volume create data 200GB for=14d",
        CommandShape.VOLUME,
        ("volumes",),
    ),
    Subcommand(
        "done",
        "done ID [success|failed] [destroy|preserve]",
        "Report that the work is done, which ends the session and deletes its disk: it asks first. `preserve` stops it "
        "and keeps the disk until its end; `destroy` asks nothing.",
        "done 4k7m2p success destroy",
        CommandShape.DONE,
        ("finish",),
    ),
    Subcommand(
        "stop",
        "stop ID",
        "Stop a machine where that saves money. The answer says what stays on it.",
        "stop 4k7m2p",
        CommandShape.ID,
    ),
    Subcommand("start", "start ID", "Start a stopped machine.", "start 4k7m2p", CommandShape.ID),
    Subcommand("restart", "restart ID", "Restart a machine in place.", "restart 4k7m2p", CommandShape.ID, ("reboot",)),
    Subcommand(
        "share",
        "share ID @WHO [off]",
        "Let somebody else log in to the machine of your request or session, also while it runs.",
        "share 4k7m2p U012AB3CD",
        CommandShape.SHARE,
    ),
    Subcommand(
        "unshare",
        "unshare ID @WHO",
        "Share it with them no longer. Their SSH keys are removed; connections that are open stay open.",
        "unshare 4k7m2p U012AB3CD",
        CommandShape.SHARE,
    ),
    Subcommand(
        "transfer",
        "transfer ID @WHO, transfer ID accept, transfer ID decline",
        "Offer your session to somebody, who becomes its owner when they accept. Costs from then on are theirs.",
        "transfer 4k7m2p U012AB3CD",
        CommandShape.TRANSFER,
    ),
    Subcommand("cancel", "cancel ID", "Cancel an open request.", "cancel 4k7m2p", CommandShape.ID),
    Subcommand(
        "again",
        "again [ID]",
        "Repeat your newest request, or another one that you may see, as a new request of yours.",
        "again 4k7m2p",
        CommandShape.MAYBE_ID,
        ("repeat",),
    ),
    Subcommand(
        "revoke",
        "revoke ID",
        "Revoke your approval in advance of a request that waits for an offer.",
        "revoke 4k7m2p",
        CommandShape.ID,
    ),
    Subcommand("why", "why ID", "Show why a request needs approval, and from whom.", "why 4k7m2p", CommandShape.ID),
    Subcommand(
        "delegate",
        "delegate @WHO until DAY, delegate list, delegate off",
        "Let one person approve for you until the end of a day (UTC). `off` ends that at once.",
        "delegate U012AB3CD until 2026-12-01",
        CommandShape.DELEGATE,
    ),
    Subcommand(
        "break-glass",
        "break-glass ID REASON",
        "Start your own request without an approval, where the policy allows you to. Every approver is notified.",
        "break-glass 4k7m2p the demo is down",
        CommandShape.REASON,
    ),
    Subcommand("audit", "audit ID", "Show the audit log of a request or session.", "audit 4k7m2p", CommandShape.ID),
    Subcommand("budget", "budget", "Show your budgets and what remains.", "budget", CommandShape.NOTHING, ("budgets",)),
    Subcommand(
        "costs",
        "costs [day|month|year|total|summary|mine|team]",
        "Show what was spent: 24 hours, this month, 12 months, in total, or a summary with other tools' costs.",
        "costs year",
        CommandShape.CHOICE,
        ("cost", "spend"),
        choices=("month", "day", "year", "total", "summary", "mine", "team", "daily", "hourly", "monthly"),
    ),
    Subcommand(
        "key",
        "key add PUBLIC-KEY, key list, key remove [FINGERPRINT]",
        "Manage the public SSH keys that your machines get.",
        "key add ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHMwCHH0TBaOfJSd4sdQ5gwsm7j/UwAXxaJnI06ctNuO ada@laptop",
        CommandShape.KEY,
    ),
    Subcommand(
        "secret",
        "secret add NAME, secret list, secret delete NAME",
        "Store secrets that your jobs get, such as HF_TOKEN. A form asks for the value.",
        "secret add HF_TOKEN",
        CommandShape.SECRET,
        ("secrets",),
    ),
    Subcommand("profile", "profile CLOUD", "Show how billing stops at a cloud.", "profile runpod", CommandShape.CLOUD),
    Subcommand(
        "help",
        "help [COMMAND]",
        "Show this list, or one command in detail.",
        "help provision",
        CommandShape.TOPIC,
        ("?",),
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
