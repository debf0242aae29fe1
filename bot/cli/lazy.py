"""List the commands; `--help` reads this table and imports nothing else, so it answers at once."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """The line of one command in `--help`; its module has an `app` (a `typer.Typer`)."""

    help: str
    hidden: bool = False
    #: `module:attribute` under `bot.cli` where it is not `commands.NAME:app`.
    at: str = ""
    #: The routes of the REST API that do the same; none for commands about this machine alone.
    routes: tuple[str, ...] = ()


COMMANDS: Mapping[str, CommandEntry] = MappingProxyType(
    {
        "demo": CommandEntry(
            "Try everything on this machine: practice workspace, sandbox clouds, the bot. No key needed.",
            at="demo.command:app",
        ),
        "serve": CommandEntry(
            "Run the bot: Slack, the REST API, health and the ticker in one process.", at="local.serve:app"
        ),
        "doctor": CommandEntry(
            "Say which settings are missing, where to set them, and whether each credential works.",
            at="local.doctor:app",
        ),
        "inventory": CommandEntry(
            "Show what is for sale now at every cloud that is set up.", routes=("GET /api/v1/inventory",)
        ),
        "plan": CommandEntry(
            "Plan a training run: memory, time and cost on every offer; writes the plan's files.",
            routes=("POST /api/v1/plans",),
        ),
        "compare": CommandEntry(
            "Compare what a run costs on every GPU for sale, and how many runs a budget buys.",
            routes=("POST /api/v1/compare",),
        ),
        "provision": CommandEntry(
            "Request GPUs: with options, words or a job file; an approver decides.",
            at="commands.requests:provision_app",
            routes=("POST /api/v1/sessions", "POST /api/v1/plans", "GET /api/v1/requests/{request}"),
        ),
        "requests": CommandEntry(
            "List requests.", at="commands.requests:requests_app", routes=("GET /api/v1/requests",)
        ),
        "request": CommandEntry(
            "Show one request: its options, and who must approve it.",
            at="commands.requests:request_app",
            routes=("GET /api/v1/requests/{request}",),
        ),
        "cancel": CommandEntry(
            "Withdraw a request.", at="commands.requests:cancel_app", routes=("POST /api/v1/requests/{request}/cancel",)
        ),
        "approve": CommandEntry(
            "Approve one option of a request.",
            at="commands.decisions:approve_app",
            routes=("GET /api/v1/requests/{request}", "POST /api/v1/requests/{request}/approve"),
        ),
        "why": CommandEntry(
            "Explain why a request needs approval, and who may give it.",
            at="commands.decisions:why_app",
            routes=("GET /api/v1/requests/{request}/why",),
        ),
        "delegate": CommandEntry(
            "Let one person approve in your place until the end of a day: set, list, off.",
            routes=("PUT /api/v1/delegations", "GET /api/v1/delegations", "DELETE /api/v1/delegations"),
        ),
        "break-glass": CommandEntry(
            "Start your own request without an approval, where the policy names you.",
            at="commands.decisions:break_glass_app",
            routes=("POST /api/v1/requests/{request}/break-glass",),
        ),
        "reject": CommandEntry(
            "Reject a request.", at="commands.decisions:reject_app", routes=("POST /api/v1/requests/{request}/reject",)
        ),
        "sessions": CommandEntry("List sessions.", routes=("GET /api/v1/sessions",)),
        "session": CommandEntry(
            "Show one session and how to connect; extend, stop, start, restart or end it; create its API's token.",
            routes=("GET /api/v1/sessions/{session}", "POST /api/v1/sessions/{session}/token"),
        ),
        "extend": CommandEntry(
            "Request more time for a session.",
            at="commands.session:extend_app",
            routes=("POST /api/v1/sessions/{session}/extend",),
        ),
        "done": CommandEntry(
            "Report that the work of a session is done, which ends it.",
            at="commands.session:done_app",
            routes=("POST /api/v1/sessions/{session}/done",),
        ),
        "stop": CommandEntry(
            "Stop a session's machine.",
            at="commands.session:stop_app",
            routes=("POST /api/v1/sessions/{session}/stop",),
        ),
        "start": CommandEntry(
            "Start a stopped machine.",
            at="commands.session:start_app",
            routes=("POST /api/v1/sessions/{session}/start",),
        ),
        "restart": CommandEntry(
            "Restart a machine in place.",
            at="commands.session:restart_app",
            routes=("POST /api/v1/sessions/{session}/restart",),
        ),
        "shutdown": CommandEntry(
            "End a session.", at="commands.session:shutdown_app", routes=("DELETE /api/v1/sessions/{session}",)
        ),
        "ssh-key": CommandEntry(
            "Manage the public SSH key of your machines: add, show, remove.",
            at="commands.ssh_key:app",
            routes=("PUT /api/v1/ssh-keys", "GET /api/v1/ssh-keys", "DELETE /api/v1/ssh-keys"),
        ),
        "progress": CommandEntry("Show the time and money that a running job still needs, against its approval."),
        "runs": CommandEntry(
            "Record and list measured runs, which correct every later plan.",
            routes=("POST /api/v1/runs", "GET /api/v1/runs"),
        ),
        "instances": CommandEntry(
            "List instances, including orphans.",
            at="commands.instances:instances_app",
            routes=("GET /api/v1/instances", "GET /api/v1/orphans"),
        ),
        "preflight": CommandEntry(
            "Check whether every cloud can be bought from now.",
            at="commands.instances:preflight_app",
            routes=("GET /api/v1/preflight",),
        ),
        "sandbox": CommandEntry("Serve a local copy of every cloud's API on one port.", at="local.sandbox:app"),
        "keys": CommandEntry(
            "Manage API keys of programs and people: create, list, revoke.",
            routes=("POST /api/v1/keys", "GET /api/v1/keys", "DELETE /api/v1/keys/{key_id}"),
        ),
        "webhooks": CommandEntry(
            "Manage webhooks: create, list, test, rotate, log, replay, delete.",
            routes=(
                "POST /api/v1/webhooks",
                "GET /api/v1/webhooks",
                "DELETE /api/v1/webhooks/{webhook}",
                "POST /api/v1/webhooks/{webhook}/test",
                "POST /api/v1/webhooks/{webhook}/rotate",
                "POST /api/v1/webhooks/{webhook}/replay",
                "GET /api/v1/webhooks/{webhook}/deliveries",
            ),
        ),
        "db": CommandEntry("Manage the ledger's schema: upgrade, downgrade, current, check.", at="local.db:app"),
        "audit": CommandEntry(
            "Show what happened to a request or session, and verify its hash chain.",
            at="commands.instances:audit_app",
            routes=("GET /api/v1/audit/{request}",),
        ),
        "budget": CommandEntry(
            "Show and set budgets, and show what was spent: show, set, costs.",
            routes=("GET /api/v1/budgets", "POST /api/v1/budgets", "GET /api/v1/costs"),
        ),
        "costs": CommandEntry(
            "Show what was spent, by hour, day or month, and by whom, where and on what.",
            at="commands.budget:costs_app",
            routes=("GET /api/v1/costs",),
        ),
        "ledger": CommandEntry(
            "Share the ledger with other tools: append, import, export, verify, summary, manifest.",
            routes=(
                "POST /api/v1/ledger/entries",
                "GET /api/v1/ledger/entries",
                "GET /api/v1/ledger/verify",
                "GET /api/v1/ledger/summary",
                "GET /api/v1/ledger/manifest",
            ),
        ),
        "orphans": CommandEntry(
            "List orphans, or terminate a quarantined one: list, condemn.",
            at="commands.instances:orphans_app",
            routes=("GET /api/v1/orphans", "POST /api/v1/orphans/{orphan}/condemn"),
        ),
        "adopt": CommandEntry(
            "Adopt a quarantined orphan as a session, with your approval.",
            at="commands.instances:adopt_app",
            routes=("POST /api/v1/orphans/{orphan}/adopt",),
        ),
        "unreachable": CommandEntry(
            "List open instances in accounts without a key, and write them off: list, gone.",
            at="commands.unreachable:app",
            routes=("GET /api/v1/unreachable", "POST /api/v1/unreachable/gone"),
        ),
        "recover": CommandEntry(
            "List the orphans at every cloud, after a lost or restored ledger.",
            at="commands.instances:recover_app",
            routes=("POST /api/v1/recover", "GET /api/v1/orphans"),
        ),
        "profiles": CommandEntry(
            "Show how each cloud bills and behaves, and how billing stops: show, lint.",
            routes=("GET /api/v1/profiles", "GET /api/v1/profiles/{cloud}"),
        ),
        "mcp": CommandEntry(
            "Serve AI agents (Model Context Protocol, stdio): they search, plan and request; people decide.",
            at="commands.mcp:app",
            routes=(
                "GET /api/v1/inventory",
                "POST /api/v1/plans",
                "POST /api/v1/compare",
                "POST /api/v1/sessions",
                "GET /api/v1/requests/{request}",
                "POST /api/v1/requests/{request}/cancel",
                "GET /api/v1/sessions",
                "GET /api/v1/costs",
                "GET /api/v1/budgets",
            ),
        ),
        "config": CommandEntry(
            "Manage credentials in .env, readable by you alone, or in the keyring: set, unset, list.",
            at="local.config:app",
        ),
        "completion": CommandEntry(
            "Print the completion of commands and options for bash, zsh or fish.", at="local.completion:app"
        ),
        "version": CommandEntry("Print the version.", at="local.version:app"),
        "practice": CommandEntry("Serve the practice workspace alone.", hidden=True, at="local.practice:app"),
        "docs": CommandEntry("Write the generated pages under docs/.", hidden=True, at="local.docs:app"),
    }
)


class LazyGroup(TyperGroup):
    """Import a command when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in with name and help, or the real command once it was imported."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry.help, hidden=entry.hidden)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is about to run."""
        if args and args[0] in COMMANDS and args[0] not in self.commands:
            module, _, attribute = (COMMANDS[args[0]].at or f"commands.{args[0]}:app").partition(":")
            self.commands[args[0]] = get_command(getattr(load(module), attribute))
        if args and args[0] not in COMMANDS and (near := _meant(args[0])):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near}'?")
        return super().resolve_command(ctx, args)


def _meant(typed: str) -> str:
    """Return the listed command that is spelt most like `typed`; empty when none is near."""
    import difflib  # noqa: PLC0415  Only a misspelt command needs it.

    listed = [name for name, entry in COMMANDS.items() if not entry.hidden]
    return next(iter(difflib.get_close_matches(typed, listed, n=1)), "")


def load(module: str) -> Any:
    """Import a module of the command line now, so that commands do not load what only the server needs."""
    return importlib.import_module(f"bot.cli.{module}")


#: The variable that a shell sets when it requests completions.
COMPLETE = "_GPU_SHOPPER_COMPLETE"


def _version(wanted: bool) -> None:
    if wanted:
        load("local.version").version()
        raise typer.Exit


def build() -> typer.Typer:
    """Build the whole command line."""
    if COMPLETE in os.environ:
        importlib.import_module("typer._completion_classes").completion_init()
    app = typer.Typer(
        cls=LazyGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="GPU Shopper: ranked GPU offers, an approval before every dollar, and no orphan afterwards.",
    )

    @app.callback()
    def top(
        version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Print the version."),
    ) -> None:
        """GPU Shopper: ranked GPU offers, an approval before every dollar, and no orphan afterwards."""

    return app
