"""List the commands with their lines in `--help`. It imports next to nothing, so `--help` answers at once."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

#: What the program is, in one sentence.
ABOUT = "GPU Shopper: ranked GPU offers, an approval before every dollar, and no orphan afterwards."


class CommandEntry(NamedTuple):
    """The line of one command in `--help`, and where the command is: a function, or a `typer.Typer` of several."""

    help: str
    #: `module:attribute` under `bot.cli` where it is not `commands.NAME:app`; a module alone has it under its own name.
    at: str
    #: The routes of the REST API that do the same; none for commands about this machine alone.
    routes: tuple[str, ...]
    hidden: bool
    #: The subject that `--help` lists it under.
    panel: str = ""


def _entry(text: str, routes: str = "", *, at: str = "", hidden: bool = False) -> CommandEntry:
    """Read one row of the table; its routes are below /api/v1."""
    return CommandEntry(text, at, tuple(one.replace(" /", " /api/v1/") for one in routes.split(", ") if one), hidden)


def _panel(subject: str, **entries: CommandEntry) -> dict[str, CommandEntry]:
    """Return the commands of one subject; `ssh_key` is the command `ssh-key`."""
    return {name.replace("_", "-"): entry._replace(panel=subject) for name, entry in entries.items()}


COMMANDS: Mapping[str, CommandEntry] = MappingProxyType(
    {
        **_panel(
            "Start here",
            demo=_entry("Try everything here: a workspace, clouds and the bot. No key.", at="demo.command"),
            config=_entry("Store credentials in .env or in the keyring.", at="local.config:app"),
            doctor=_entry("Check the set-up: what is missing, and where to set it.", at="local.doctor"),
            serve=_entry("Run the bot: Slack, the REST API and the ticker.", at="local.serve"),
        ),
        **_panel(
            "Market",
            inventory=_entry("Show what the clouds sell now.", "GET /inventory", at="commands.inventory"),
            plan=_entry("Plan a run: memory, time and cost on every offer.", "POST /plans", at="commands.plan"),
            compare=_entry(
                "Compare what a run costs on every GPU, and runs per budget.", "POST /compare", at="commands.compare"
            ),
            profiles=_entry(
                "Show how each cloud bills, and how billing stops.", "GET /profiles, GET /profiles/{cloud}"
            ),
        ),
        **_panel(
            "Requests",
            provision=_entry(
                "Request GPUs by options, words or a job file.",
                "POST /sessions, POST /plans, GET /requests/{request}",
                at="commands.requests",
            ),
            run=_entry(
                "Hand over a job, and follow it to its exit code.",
                "POST /sessions, GET /requests/{request}, GET /sessions/{session}, GET /sessions/{session}/logs, "
                "POST /sessions/{session}/done",
                at="commands.run",
            ),
            requests=_entry("List requests.", "GET /requests", at="commands.requests"),
            request=_entry(
                "Show one request: its offers, and who must approve it.",
                "GET /requests/{request}",
                at="commands.requests",
            ),
            approve=_entry(
                "Approve an offer of a request, after showing its total.",
                "GET /requests/{request}, POST /requests/{request}/approve",
                at="commands.decisions",
            ),
            reject=_entry("Reject a request.", "POST /requests/{request}/reject", at="commands.decisions"),
            cancel=_entry("Withdraw a request.", "POST /requests/{request}/cancel", at="commands.requests"),
            again=_entry(
                "Repeat an earlier request as a new one of yours.", "POST /requests/again", at="commands.requests"
            ),
            revoke=_entry(
                "Revoke your approval in advance of a request that waits.",
                "POST /requests/{request}/revoke",
                at="commands.decisions",
            ),
            share=_entry(
                "Let somebody else log in to your machine.",
                "POST /requests/{request}/share",
                at="commands.people",
            ),
            unshare=_entry(
                "Share a machine with somebody no longer.",
                "POST /requests/{request}/share",
                at="commands.people",
            ),
            why=_entry(
                "Explain why a request needs approval, and from whom.",
                "GET /requests/{request}/why",
                at="commands.decisions",
            ),
            break_glass=_entry(
                "Start your own request without an approval, where allowed.",
                "POST /requests/{request}/break-glass",
                at="commands.decisions",
            ),
            delegate=_entry(
                "Let one person approve in your place until a day.",
                "PUT /delegations, GET /delegations, DELETE /delegations",
                at="commands.decisions:delegate_app",
            ),
        ),
        **_panel(
            "Sessions",
            sessions=_entry("List sessions.", "GET /sessions", at="commands.session"),
            history=_entry("List sessions that ended.", "GET /sessions", at="commands.session"),
            session=_entry(
                "Show one session and how to connect, or change it.",
                "GET /sessions/{session}, GET /sessions/{session}/commands, POST /sessions/{session}/token",
            ),
            shares=_entry(
                "List who may log in to a session's machine.", "GET /sessions/{session}/shares", at="commands.people"
            ),
            transfer=_entry(
                "Give a session to another owner.",
                "POST /sessions/{session}/transfer, POST /sessions/{session}/transfer/accept, "
                "POST /sessions/{session}/transfer/decline",
                at="commands.people:transfer_app",
            ),
            ssh=_entry(
                "Log in to a session's machine, or run a command there.",
                "GET /sessions/{session}/ssh",
                at="commands.connect:ssh_app",
            ),
            logs=_entry(
                "Show or follow a log on a session's machine.",
                "GET /sessions/{session}/logs, GET /sessions/{session}/ssh",
                at="commands.connect",
            ),
            scp=_entry(
                "Copy files with scp: ID:path is on the machine.",
                "GET /sessions/{session}/ssh",
                at="commands.connect:scp_app",
            ),
            rsync=_entry(
                "Copy what has changed with rsync: ID:path is on the machine.",
                "GET /sessions/{session}/ssh",
                at="commands.connect:rsync_app",
            ),
            open=_entry(
                "Reach a port of the machine, by a tunnel where needed.",
                "GET /sessions/{session}/ssh",
                at="commands.connect:open_app",
            ),
            extend=_entry("Request more time.", "POST /sessions/{session}/extend", at="commands.session"),
            migrate=_entry(
                "Move a run to another machine.",
                "POST /sessions/{session}/migrate, GET /sessions/{session}",
                at="commands.session",
            ),
            volume=_entry(
                "Keep data on a network volume that outlives your machines.",
                "POST /volumes, GET /volumes, POST /sessions/{session}/extend, DELETE /sessions/{session}",
                at="commands.volume_commands:app",
            ),
            done=_entry(
                "Report that the work is done, which ends the session.",
                "POST /sessions/{session}/done",
                at="commands.session",
            ),
            stop=_entry("Stop a session's machine.", "POST /sessions/{session}/stop", at="commands.session"),
            start=_entry("Start a stopped machine.", "POST /sessions/{session}/start", at="commands.session"),
            grace=_entry(
                "Wait for a machine in grace, replace it, or give it up.",
                "POST /sessions/{session}/grace",
                at="commands.session",
            ),
            restart=_entry("Restart a machine in place.", "POST /sessions/{session}/restart", at="commands.session"),
            shutdown=_entry("End a session.", "DELETE /sessions/{session}", at="commands.session"),
            ssh_key=_entry(
                "Set the public SSH keys that your machines accept.",
                "PUT /ssh-keys, GET /ssh-keys, DELETE /ssh-keys",
                at="commands.keys:ssh_app",
            ),
            secret=_entry(
                "Store the secrets that your jobs get, such as HF_TOKEN.",
                "PUT /secrets/{name}, GET /secrets, GET /secrets/{name}, DELETE /secrets/{name}",
                at="commands.secrets:app",
            ),
            progress=_entry("Show the time and money that a job still needs.", at="commands.progress"),
            runs=_entry("Record measured runs, which correct later plans.", "POST /runs, GET /runs"),
        ),
        **_panel(
            "Money",
            costs=_entry(
                "Show what was spent, when, by whom and on what.",
                "GET /costs, GET /costs/focus, GET /costs/statement",
                at="commands.budget:costs_",
            ),
            budget=_entry("Show and set budgets.", "GET /budgets, POST /budgets, GET /costs"),
            ledger=_entry(
                "Share costs with other tools, and verify the ledger.",
                "POST /ledger/entries, GET /ledger/entries, GET /ledger/verify, GET /ledger/summary, "
                "GET /ledger/manifest",
            ),
            bills=_entry(
                "List bills that need a check, and book them.",
                "GET /bills, POST /bills/{bill}/confirm",
                at="commands.ledger:bills_app",
            ),
        ),
        **_panel(
            "Administration",
            preflight=_entry(
                "Check whether each cloud can be bought from now.", "GET /preflight", at="commands.instances"
            ),
            keys=_entry("Manage API keys of programs and people.", "POST /keys, GET /keys, DELETE /keys/{key_id}"),
            webhooks=_entry(
                "Manage webhooks and their deliveries.",
                "POST /webhooks, GET /webhooks, DELETE /webhooks/{webhook}, POST /webhooks/{webhook}/test, "
                "POST /webhooks/{webhook}/rotate, POST /webhooks/{webhook}/replay, GET /webhooks/{webhook}/deliveries",
            ),
            mcp=_entry(
                "Serve AI agents over MCP: they request, people approve.",
                "GET /inventory, POST /plans, POST /compare, POST /sessions, GET /requests/{request}, "
                "POST /requests/{request}/cancel, GET /volumes, POST /volumes, GET /sessions, "
                "POST /sessions/{session}/shares, DELETE /sessions/{session}/shares, "
                "GET /sessions/{session}/logs, GET /costs, GET /budgets",
                at="commands.mcp",
            ),
            instances=_entry(
                "List instances, including orphans.", "GET /instances, GET /orphans", at="commands.instances"
            ),
            orphans=_entry(
                "List orphans, and terminate quarantined ones.",
                "GET /orphans, POST /orphans/{orphan}/condemn",
                at="commands.instances:orphans_app",
            ),
            adopt=_entry(
                "Adopt a quarantined orphan as a session.", "POST /orphans/{orphan}/adopt", at="commands.instances"
            ),
            unreachable=_entry(
                "List instances in accounts without a key; write them off.",
                "GET /unreachable, POST /unreachable/gone",
                at="commands.instances:unreachable_app",
            ),
            recover=_entry(
                "List what a restored ledger lacks, and accept it as it is.",
                "POST /recover, POST /recover/accept, GET /orphans",
                at="commands.instances",
            ),
            audit=_entry(
                "Show what happened to a request, and verify the journal.",
                "GET /audit/{request}",
                at="commands.instances",
            ),
            backup=_entry("Back up the ledger, its key and the policy, or check a backup.", at="local.backup"),
            restore=_entry("Restore a backup; the present ledger stays beside it.", at="local.backup:restore"),
            db=_entry("Upgrade, downgrade and check the ledger's schema.", at="local.db:app"),
            sandbox=_entry("Serve a local copy of every cloud's API.", at="demo.sandbox"),
            completion=_entry("Print the shell completion.", at="local.completion"),
            version=_entry("Print the version.", at="local.version"),
            practice=_entry("Serve the practice workspace alone.", at="demo.practice", hidden=True),
            docs=_entry("Write the generated pages under docs/.", at="local.docs", hidden=True),
        ),
    }
)


def load(module: str) -> Any:
    """Import a module of the command line now, so that commands do not load what only the server needs."""
    return importlib.import_module(f"bot.cli.{module}")
