"""Build the command line of the table of commands: each command is imported when it is called."""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from bot.cli.command_table import ABOUT, COMMANDS, load

#: What the same is called in Slack → the command here.
AS_IN_SLACK: Mapping[str, str] = MappingProxyType(
    {"list": "sessions", "status": "session", "terminate": "shutdown", "key": "ssh-key", "profile": "profiles"}
)

#: A command of several below it → the one that it is alone.
ALONE: Mapping[str, str] = MappingProxyType(
    {"budget": "show", "ssh-key": "list", "delegate": "list", "bills": "list", "secret": "list"}
)

#: A wrong command line, by whichever name the installed typer has for it.
USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__mro__[1])


@contextmanager
def _worded() -> Iterator[None]:
    """Turn a usage error into its sentence and exit code 2; a request for help passes."""
    try:
        yield
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        load("terminal.screen").fail(load("terminal.usage_errors").worded(error), 2)


class LazyGroup(TyperGroup):
    """Import a command when it is called."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the options before the command; a wrong one is answered with a sentence."""
        with _worded():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a wrong option of it is answered with a sentence."""
        with _worded():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """List the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in with name and help, or the real command once it was imported."""
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        return TyperCommand(cmd_name, help=entry.help, hidden=entry.hidden, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command that is about to run; an unknown one is answered with the nearest name.

        `help NAME` is `NAME --help`, and a name of Slack is taken for the command that does the same.
        """
        if args[:1] == ["help"]:
            if len(args) == 1:
                typer.echo(ctx.get_help())
                raise typer.Exit
            args = [*args[1:], "--help"]
        args = [AS_IN_SLACK.get(args[0], args[0]), *args[1:]]
        args = [args[0], ALONE[args[0]]] if len(args) == 1 and args[0] in ALONE else args
        if args[0] in COMMANDS and args[0] not in self.commands:
            self.commands[args[0]] = imported(args[0])
        if args[0] not in COMMANDS:
            listed = [name for name, entry in COMMANDS.items() if not entry.hidden]
            load("terminal.screen").fail(load("terminal.usage_errors").unknown(args[0], listed), 2)
        return super().resolve_command(ctx, args)


def imported(name: str) -> Any:
    """Import one command of the table."""
    module, _, attribute = (COMMANDS[name].at or f"commands.{name}:app").partition(":")
    found = getattr(load(module), attribute or name.replace("-", "_"))
    if not gc.isenabled():  # `main` disabled it for the import.
        gc.freeze()
        gc.enable()
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command()(found)
        found = app
    return get_command(found)


#: The variable that a shell sets when it requests completions.
COMPLETE = "_GPU_SHOPPER_COMPLETE"


def _version(wanted: bool) -> None:
    if wanted:
        load("local.version").version()
        raise typer.Exit


def _shown_type(option: TyperOption, ctx: Any) -> str | None:
    """Return what help shows behind an option: nothing behind a flag, which takes no value."""
    return None if option.is_flag else _TYPE(option, ctx)


_TYPE = TyperOption.display_type_rich


def build() -> typer.Typer:
    """Build the whole command line."""
    TyperOption.display_type_rich = _shown_type  # type: ignore[method-assign,assignment] # The library shows `--json <bool>`.
    if COMPLETE in os.environ:
        importlib.import_module("typer._completion_classes").completion_init()
    app = typer.Typer(
        cls=LazyGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=ABOUT,
    )

    @app.callback()
    def top(
        version: bool = typer.Option(False, "--version", is_eager=True, callback=_version, help="Print the version."),
    ) -> None:
        """GPU Shopper: ranked GPU offers, an approval before every dollar, and no orphan afterwards."""

    return app
