"""`gpu-shopper share`, `unshare`, `shares` and `transfer`: who may log in to a machine, and whose session it is."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bot.api.schemas.people import SharerOut
from bot.cli.access.api_client import spoken
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, Json, Named, plain_id
from bot.cli.terminal.terminal_tables import show, show_result
from bot.cli.terminal.views import name_of, time_cell


class _OffersByDefault(TyperGroup):
    """Treat `transfer ID PERSON` as `transfer offer ID PERSON`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the named subcommand, or `offer`."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["offer", *args]
        return super().resolve_command(ctx, args)


transfer_app = typer.Typer(
    cls=_OffersByDefault, no_args_is_help=True, add_completion=False, help="Give a session to another owner."
)

Person = Annotated[str, typer.Argument(help="A Slack id, operator:ada, or a name that the policy links.")]


def share(
    request: Named,
    person: Person,
    off: Annotated[bool, typer.Option("--off", help="As `unshare`.")] = False,
    as_json: Json = False,
) -> None:
    """Let somebody else log in to the machine of your request or session, also while it runs.

    Their SSH keys go onto the machine. They see the session, log in and copy files, and can't change it.
    """
    done = spoken(lambda api: api.post(f"/requests/{plain_id(request)}/share", {"person": person, "off": off}))
    show_result(done, as_json=as_json)


def unshare(request: Named, person: Person, as_json: Json = False) -> None:
    """Share a machine with somebody no longer. Their SSH keys are removed; connections that are open stay open."""
    done = spoken(lambda api: api.post(f"/requests/{plain_id(request)}/share", {"person": person, "off": True}))
    show_result(done, as_json=as_json)


def shares(session: Named, columns: Columns = "", as_json: Json = False) -> None:
    """List who may log in to the machine of a session, and whether their SSH keys are on it."""
    found = spoken(lambda api: api.get(f"/sessions/{plain_id(session, 'sessions')}/shares"))
    cells: ListColumns[SharerOut] = (
        ("person", lambda one: one.person_name or name_of(one.person)),
        ("role", lambda one: "owner" if one.is_owner else "shares it"),
        ("keys", lambda one: str(one.keys)),
        ("on the machine since", _since),
        ("problem", lambda one: one.problem or "-"),
    )
    people = map(SharerOut.model_validate, found)
    show(found if as_json else listing("Nobody may log in.", cells, people), columns)


def _since(one: SharerOut) -> str:
    return time_cell(one.placed_at) if one.placed_at else "not yet" if one.keys else "-"


@transfer_app.command()
def offer(session: Named, person: Person, as_json: Json = False) -> None:
    """Offer your session to somebody. Once they accept, its costs, warnings and buttons are theirs."""
    path = f"/sessions/{plain_id(session, 'sessions')}/transfer"
    show_result(spoken(lambda api: api.post(path, {"person": person})), as_json=as_json)


@transfer_app.command()
def accept(session: Named, as_json: Json = False) -> None:
    """Accept the session that somebody offers you."""
    path = f"/sessions/{plain_id(session, 'sessions')}/transfer/accept"
    show_result(spoken(lambda api: api.post(path, {})), as_json=as_json)


@transfer_app.command()
def decline(session: Named, as_json: Json = False) -> None:
    """Decline the session that somebody offers you, or withdraw your own offer."""
    path = f"/sessions/{plain_id(session, 'sessions')}/transfer/decline"
    show_result(spoken(lambda api: api.post(path, {})), as_json=as_json)
