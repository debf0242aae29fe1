"""`gpu-shopper volume`: ask for network volumes, list them, keep them longer and delete them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bot.api.schemas.sessions import SessionOut
from bot.api.schemas.volume_schemas import VolumeOut
from bot.cli.access.api_client import ApiClient, spoken
from bot.cli.terminal.listing import ListColumns, listing
from bot.cli.terminal.options import Columns, IdempotencyKey, Json, Reason, Words, in_words
from bot.cli.terminal.screen import agreed, at_terminal, fail, group
from bot.cli.terminal.terminal_tables import show, show_result
from bot.cli.terminal.views import end_question, name_of, time_cell
from bot.rules.values.phrases import rate, usd
from bot.rules.values.state_text import state_words
from ledger.kernel.ids import short_id

app = group("Network volumes, which outlive your machines: create, list, extend, delete.")

Name = Annotated[str, typer.Argument(help="The name of the volume, such as data.")]


@app.command()
def create(
    name: Name,
    size: Annotated[str, typer.Argument(help="Its size, such as 200GB or 2TB.")],
    cloud: Annotated[str, typer.Option(help="The cloud; the cheapest by default.")] = "",
    region: Annotated[str, typer.Option(help="Regions or countries, with commas.")] = "",
    time: Annotated[str, typer.Option("--for", help="How long it stays, such as 14d or 36h.")] = "14d",
    reason: Reason = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Ask for a volume. It is created once an approver has approved its cost until its end."""
    regions = [one.strip() for one in region.split(",") if one.strip()]
    body = {"name": name, "size": size, "cloud": cloud, "regions": regions, "time": time, "reason": reason}
    show_result(spoken(lambda api: api.post("/volumes", body, idempotency_key)), as_json=as_json)


@app.command("list")
def list_(columns: Columns = "", as_json: Json = False) -> None:
    """List your volumes."""
    found = spoken(lambda api: api.get("/volumes"))
    cells: ListColumns[VolumeOut] = (
        ("volume", lambda one: one.name),
        ("size", lambda one: f"{one.size_gb:,} GB"),
        ("cloud", lambda one: one.cloud),
        ("region", lambda one: one.region),
        ("state", lambda one: state_words(one.state)),
        ("per hour", lambda one: rate(one.price_usd_h)),
        ("so far", lambda one: usd(one.cost_usd)),
        ("deleted", lambda one: time_cell(one.deadline)),
        ("owner", lambda one: one.owner_name or name_of(one.owner)),
        ("path", lambda one: one.path),
        ("session", lambda one: short_id(one.request_id)),
        ("trouble", lambda one: one.trouble),
    )
    volumes = map(VolumeOut.model_validate, found)
    empty = "You have no volumes. Ask for one: gpu-shopper volume create data 200GB --for 14d"
    show(found if as_json else listing(empty, cells, volumes, extra=("path", "session", "owner")), columns)


@app.command()
def extend(
    name: Name,
    more: Annotated[str, typer.Argument(help="How much longer, such as 7d or 36h.")],
    words: Words = None,
    reason: Reason = "",
    idempotency_key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Ask to keep a volume for longer. An approver approves what that costs."""

    async def request_more(api: ApiClient) -> Any:
        body = {"hours": more, "reason": in_words(reason, words)}
        return await api.post(f"/sessions/{await _session(api, name)}/extend", body, idempotency_key)

    show_result(spoken(request_more), as_json=as_json)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Delete a volume and all data on it. In a terminal, it asks first."""

    async def end(api: ApiClient) -> Any:
        session = await _session(api, name)
        if at_terminal() and not (yes or as_json):
            found = SessionOut.model_validate(await api.get(f"/sessions/{session}"))
            if not agreed(end_question(found)):
                typer.echo("Nothing has changed.")
                raise typer.Exit(1)
        return await api.delete(f"/sessions/{session}")

    show_result(spoken(end), as_json=as_json)


async def _session(api: ApiClient, name: str) -> str:
    """Return the id of the session that a volume is; ends the program where there is no such volume."""
    found = [VolumeOut.model_validate(one) for one in await api.get("/volumes")]
    volume = next((one for one in found if one.name == name.lower()), None)
    if volume is None:
        there = f"Your volumes: {names}." if (names := ", ".join(one.name for one in found)) else "You have none."
        fail(f'You have no volume "{name[:40]}". {there} Run `gpu-shopper volume list`.')
    return volume.session_id
