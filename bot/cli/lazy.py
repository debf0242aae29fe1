"""The table of commands. `--help` reads this table and imports nothing else, so it answers at once."""

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
    """A command's one line in `--help`; its module has an `app` (a `typer.Typer`)."""

    help: str
    hidden: bool = False
    #: `module:attribute` under `bot.cli` where it is not `commands.NAME:app`.
    at: str = ""
    #: The routes of the REST API that do the same; none for what is about this machine alone.
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
            "What a run needs, takes and costs on every offer; writes the plan's files.", routes=("POST /api/v1/plans",)
        ),
        "compare": CommandEntry(
            "What a run costs on every GPU for sale, and how many runs a budget buys.", routes=("POST /api/v1/compare",)
        ),
        "provision": CommandEntry(
            "Ask for GPUs: with options, words or a job file; a person decides.",
            at="commands.requests:provision_app",
            routes=("POST /api/v1/sessions", "POST /api/v1/plans", "GET /api/v1/requests/{request}"),
        ),
        "requests": CommandEntry(
            "List requests.", at="commands.requests:requests_app", routes=("GET /api/v1/requests",)
        ),
        "request": CommandEntry(
            "Show one request: its options, and for whom it waits.",
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
            "Why a request needs approval, and who may give it.",
            at="commands.decisions:why_app",
            routes=("GET /api/v1/requests/{request}/why",),
        ),
        "delegate": CommandEntry(
            "Let one person decide in your place through a day: set, list, off.",
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
            "Show one session and how to connect; extend, stop, start, restart or end it; make its API's token.",
            routes=("GET /api/v1/sessions/{session}", "POST /api/v1/sessions/{session}/token"),
        ),
        "extend": CommandEntry(
            "Ask for more time for a session.",
            at="commands.session:extend_app",
            routes=("POST /api/v1/sessions/{session}/extend",),
        ),
        "done": CommandEntry(
            "The work of a session is over.",
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
            "The public SSH key of your machines: add, show, remove.",
            at="commands.ssh_key:app",
            routes=("PUT /api/v1/ssh-keys", "GET /api/v1/ssh-keys", "DELETE /api/v1/ssh-keys"),
        ),
        "progress": CommandEntry("What a running job still takes and costs, compared with what was approved."),
        "runs": CommandEntry(
            "What your own runs made, which corrects every later plan: record, list.",
            routes=("POST /api/v1/runs", "GET /api/v1/runs"),
        ),
        "instances": CommandEntry(
            "List instances, or those of ours that have no row here.",
            at="commands.instances:instances_app",
            routes=("GET /api/v1/instances", "GET /api/v1/strays"),
        ),
        "preflight": CommandEntry(
            "Ask every cloud whether it can be bought from now.",
            at="commands.instances:preflight_app",
            routes=("GET /api/v1/preflight",),
        ),
        "sandbox": CommandEntry("Serve a local copy of every cloud's API on one port.", at="local.sandbox:app"),
        "keys": CommandEntry(
            "API keys of programs and people: create, list, revoke.",
            routes=("POST /api/v1/keys", "GET /api/v1/keys", "DELETE /api/v1/keys/{key_id}"),
        ),
        "webhooks": CommandEntry(
            "Addresses that are told what happens: create, list, test, rotate, log, replay, delete.",
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
        "db": CommandEntry("The ledger's schema: upgrade, downgrade, current, check.", at="local.db:app"),
        "audit": CommandEntry(
            "What happened to a request or session, with its seals checked.",
            at="commands.instances:audit_app",
            routes=("GET /api/v1/audit/{request}",),
        ),
        "budget": CommandEntry(
            "What the budgets still allow, and what was spent: show, set, costs.",
            routes=("GET /api/v1/budgets", "POST /api/v1/budgets", "GET /api/v1/costs"),
        ),
        "costs": CommandEntry(
            "What was spent, by the hour, day or month, and by whom, where and on what.",
            at="commands.budget:costs_app",
            routes=("GET /api/v1/costs",),
        ),
        "ledger": CommandEntry(
            "The ledger that tools share: append, import, export, verify, summary, manifest.",
            routes=(
                "POST /api/v1/ledger/entries",
                "GET /api/v1/ledger/entries",
                "GET /api/v1/ledger/verify",
                "GET /api/v1/ledger/summary",
                "GET /api/v1/ledger/manifest",
            ),
        ),
        "strays": CommandEntry(
            "Instances of ours without a row of their own: list, condemn.",
            at="commands.instances:strays_app",
            routes=("GET /api/v1/strays", "POST /api/v1/strays/{stray}/condemn"),
        ),
        "adopt": CommandEntry(
            "Keep an instance that the ledger had lost, with your approval.",
            at="commands.instances:adopt_app",
            routes=("POST /api/v1/strays/{stray}/adopt",),
        ),
        "unreachable": CommandEntry(
            "Open instances of accounts whose key is not set up: list, gone.",
            at="commands.unreachable:app",
            routes=("GET /api/v1/unreachable", "POST /api/v1/unreachable/gone"),
        ),
        "recover": CommandEntry(
            "After a lost or restored ledger: find every instance of ours at every cloud.",
            at="commands.instances:recover_app",
            routes=("POST /api/v1/recover", "GET /api/v1/strays"),
        ),
        "profiles": CommandEntry(
            "What is peculiar to each cloud and what ends its meter: show, lint.",
            routes=("GET /api/v1/profiles", "GET /api/v1/profiles/{cloud}"),
        ),
        "mcp": CommandEntry(
            "Serve AI agents (Model Context Protocol, stdio): they look, plan and ask; people decide.",
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
            "Credentials in .env, readable by you alone, or in the keyring: set, unset, list.", at="local.config:app"
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
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in with name and help; the real command once it was loaded."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry.help, hidden=entry.hidden)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that is about to run."""
        if args and args[0] in COMMANDS and args[0] not in self.commands:
            module, _, attribute = (COMMANDS[args[0]].at or f"commands.{args[0]}:app").partition(":")
            self.commands[args[0]] = get_command(getattr(load(module), attribute))
        if args and args[0] not in COMMANDS and (near := _meant(args[0])):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near}'?")
        return super().resolve_command(ctx, args)


def _meant(typed: str) -> str:
    """The listed command that is spelt most like `typed`; empty when none is near."""
    import difflib  # noqa: PLC0415  Only a misspelt command needs it.

    listed = [name for name, entry in COMMANDS.items() if not entry.hidden]
    return next(iter(difflib.get_close_matches(typed, listed, n=1)), "")


def load(module: str) -> Any:
    """A module of the command line, loaded now: what a command needs on the server is not loaded elsewhere."""
    return importlib.import_module(f"bot.cli.{module}")


#: What a shell sets when it asks how a line may go on.
COMPLETE = "_GPU_SHOPPER_COMPLETE"


def _version(asked: bool) -> None:
    if asked:
        load("local.version").version()
        raise typer.Exit


def build() -> typer.Typer:
    """The whole command line."""
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
