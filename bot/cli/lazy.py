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
    """The line of one command in `--help`, and where the command is: a function, or a `typer.Typer` of several."""

    help: str
    #: `module:attribute` under `bot.cli` where it is not `commands.NAME:app`.
    at: str
    #: The routes of the REST API that do the same; none for commands about this machine alone.
    routes: tuple[str, ...]
    hidden: bool


def _entry(text: str, routes: str = "", *, at: str = "", hidden: bool = False) -> CommandEntry:
    """Read one row of the table; its routes are below /api/v1."""
    return CommandEntry(text, at, tuple(one.replace(" /", " /api/v1/") for one in routes.split(", ") if one), hidden)


COMMANDS: Mapping[str, CommandEntry] = MappingProxyType(
    {
        "demo": _entry(
            "Try everything on this machine: practice workspace, sandbox clouds, the bot. No key needed.",
            at="demo.command:demo",
        ),
        "serve": _entry(
            "Run the bot: Slack, the REST API, health and the ticker in one process.", at="local.serve:serve"
        ),
        "doctor": _entry(
            "Say which settings are missing, where to set them, and whether each credential works.",
            at="local.doctor:doctor",
        ),
        "inventory": _entry(
            "Show what is for sale now at every cloud that is set up.",
            "GET /inventory",
            at="commands.inventory:inventory",
        ),
        "plan": _entry(
            "Plan a training run: memory, time and cost on every offer; writes the plan's files.",
            "POST /plans",
            at="commands.plan:plan",
        ),
        "compare": _entry(
            "Compare what a run costs on every GPU for sale, and how many runs a budget buys.",
            "POST /compare",
            at="commands.compare:compare",
        ),
        "provision": _entry(
            "Request GPUs: with options, words or a job file; an approver decides.",
            "POST /sessions, POST /plans, GET /requests/{request}",
            at="commands.requests:provision",
        ),
        "requests": _entry("List requests.", "GET /requests", at="commands.requests:requests"),
        "request": _entry(
            "Show one request: its options, and who must approve it.",
            "GET /requests/{request}",
            at="commands.requests:request",
        ),
        "cancel": _entry("Withdraw a request.", "POST /requests/{request}/cancel", at="commands.requests:cancel"),
        "approve": _entry(
            "Approve one option of a request.",
            "GET /requests/{request}, POST /requests/{request}/approve",
            at="commands.decisions:approve",
        ),
        "why": _entry(
            "Explain why a request needs approval, and who may give it.",
            "GET /requests/{request}/why",
            at="commands.decisions:why",
        ),
        "delegate": _entry(
            "Let one person approve in your place until the end of a day: set, list, off.",
            "PUT /delegations, GET /delegations, DELETE /delegations",
            at="commands.decisions:delegate_app",
        ),
        "break-glass": _entry(
            "Start your own request without an approval, where the policy names you.",
            "POST /requests/{request}/break-glass",
            at="commands.decisions:break_glass",
        ),
        "reject": _entry("Reject a request.", "POST /requests/{request}/reject", at="commands.decisions:reject"),
        "sessions": _entry("List sessions.", "GET /sessions", at="commands.session:sessions"),
        "session": _entry(
            "Show one session and how to connect; extend, stop, start, restart or end it; create its API's token.",
            "GET /sessions/{session}, POST /sessions/{session}/token",
        ),
        "extend": _entry(
            "Request more time for a session.", "POST /sessions/{session}/extend", at="commands.session:extend"
        ),
        "done": _entry(
            "Report that the work of a session is done, which ends it.",
            "POST /sessions/{session}/done",
            at="commands.session:done",
        ),
        "stop": _entry("Stop a session's machine.", "POST /sessions/{session}/stop", at="commands.session:stop"),
        "start": _entry("Start a stopped machine.", "POST /sessions/{session}/start", at="commands.session:start"),
        "restart": _entry(
            "Restart a machine in place.", "POST /sessions/{session}/restart", at="commands.session:restart"
        ),
        "shutdown": _entry("End a session.", "DELETE /sessions/{session}", at="commands.session:shutdown"),
        "ssh-key": _entry(
            "Manage the public SSH key of your machines: add, show, remove.",
            "PUT /ssh-keys, GET /ssh-keys, DELETE /ssh-keys",
            at="commands.keys:ssh_app",
        ),
        "progress": _entry(
            "Show the time and money that a running job still needs, against its approval.",
            at="commands.progress:progress",
        ),
        "runs": _entry("Record and list measured runs, which correct every later plan.", "POST /runs, GET /runs"),
        "instances": _entry(
            "List instances, including orphans.", "GET /instances, GET /orphans", at="commands.instances:instances"
        ),
        "preflight": _entry(
            "Check whether every cloud can be bought from now.", "GET /preflight", at="commands.instances:preflight"
        ),
        "sandbox": _entry("Serve a local copy of every cloud's API on one port.", at="local.sandbox:sandbox"),
        "keys": _entry(
            "Manage API keys of programs and people: create, list, revoke.",
            "POST /keys, GET /keys, DELETE /keys/{key_id}",
        ),
        "webhooks": _entry(
            "Manage webhooks: create, list, test, rotate, log, replay, delete.",
            "POST /webhooks, GET /webhooks, DELETE /webhooks/{webhook}, POST /webhooks/{webhook}/test, "
            "POST /webhooks/{webhook}/rotate, POST /webhooks/{webhook}/replay, GET /webhooks/{webhook}/deliveries",
        ),
        "db": _entry("Manage the ledger's schema: upgrade, downgrade, current, check.", at="local.db:app"),
        "audit": _entry(
            "Show what happened to a request or session, and verify its hash chain.",
            "GET /audit/{request}",
            at="commands.instances:audit",
        ),
        "budget": _entry(
            "Show and set budgets, and show what was spent: show, set, costs.",
            "GET /budgets, POST /budgets, GET /costs",
        ),
        "costs": _entry(
            "Show what was spent, by hour, day or month, and by whom, where and on what.",
            "GET /costs",
            at="commands.budget:costs_",
        ),
        "ledger": _entry(
            "Share the ledger with other tools: append, import, export, verify, summary, manifest.",
            "POST /ledger/entries, GET /ledger/entries, GET /ledger/verify, GET /ledger/summary, GET /ledger/manifest",
        ),
        "orphans": _entry(
            "List orphans, or terminate a quarantined one: list, condemn.",
            "GET /orphans, POST /orphans/{orphan}/condemn",
            at="commands.instances:orphans_app",
        ),
        "adopt": _entry(
            "Adopt a quarantined orphan as a session, with your approval.",
            "POST /orphans/{orphan}/adopt",
            at="commands.instances:adopt",
        ),
        "unreachable": _entry(
            "List open instances in accounts without a key, and write them off: list, gone.",
            "GET /unreachable, POST /unreachable/gone",
            at="commands.instances:unreachable_app",
        ),
        "bills": _entry(
            "List bills above what their instance can have cost, and book one that you checked: list, confirm.",
            "GET /bills, POST /bills/{bill}/confirm",
            at="commands.ledger:bills_app",
        ),
        "recover": _entry(
            "List the orphans at every cloud, after a lost or restored ledger.",
            "POST /recover, GET /orphans",
            at="commands.instances:recover",
        ),
        "profiles": _entry(
            "Show how each cloud bills and behaves, and how billing stops: show, lint.",
            "GET /profiles, GET /profiles/{cloud}",
        ),
        "mcp": _entry(
            "Serve AI agents (Model Context Protocol, stdio): they search, plan and request; people decide.",
            "GET /inventory, POST /plans, POST /compare, POST /sessions, GET /requests/{request}, "
            "POST /requests/{request}/cancel, GET /sessions, GET /costs, GET /budgets",
            at="commands.mcp:mcp",
        ),
        "config": _entry(
            "Manage credentials in .env, readable by you alone, or in the keyring: set, unset, list.",
            at="local.config:app",
        ),
        "completion": _entry(
            "Print the completion of commands and options for bash, zsh or fish.", at="local.completion:completion"
        ),
        "version": _entry("Print the version.", at="local.version:version"),
        "practice": _entry("Serve the practice workspace alone.", at="local.practice:practice", hidden=True),
        "docs": _entry("Write the generated pages under docs/.", at="local.docs:docs", hidden=True),
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
            self.commands[args[0]] = imported(args[0])
        if args and args[0] not in COMMANDS and (near := _meant(args[0])):
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near}'?")
        return super().resolve_command(ctx, args)


def imported(name: str) -> Any:
    """Import one command of the table."""
    module, _, attribute = (COMMANDS[name].at or f"commands.{name}:app").partition(":")
    found = getattr(load(module), attribute)
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command()(found)
        found = app
    return get_command(found)


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
