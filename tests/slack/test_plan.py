"""Plans in Slack: the table for `/gpu plan`, the button of the form, and the chart that Slack shows."""

from __future__ import annotations

from typing import Any

from bot.practice.model import ChatMessage, OpenView
from bot.practice.reader import all_text
from tests.slack.conftest import Stage

RUN = "model=1B tokens=2B seq=2048 batch=512"


def charts(stage: Stage, who: str) -> list[ChatMessage]:
    """The messages with a file in somebody's direct messages with the app."""
    return [one for one in stage.ws.channel_messages(stage.ws.dm_id(who)) if one.files]


def shown(stage: Stage, who: str = "alice") -> str:
    view = stage.ws.view(who)
    assert view is not None
    return all_text(view)


async def plan_button(stage: Stage, values: dict[str, Any]) -> OpenView:
    """Open the form, fill in some of it and press the button."""
    await stage.command("alice", "/gpu provision")
    form = stage.ws.view("alice")
    assert form is not None
    await stage.as_("alice").click(form, "Show what it would cost", values=values)
    await stage.settle()
    return form


async def test_a_plan_has_a_chart_that_only_whoever_asked_sees(stage: Stage) -> None:
    await stage.command("alice", f"/gpu plan {RUN}")
    assert "Plan for" in all_text(stage.ws.ephemerals("alice")[-1])
    (message,) = charts(stage, "alice")
    assert message.text == f"The chart of the plan for {RUN}. Nothing was rented or requested."
    (file,) = message.files
    stored = stage.practice.workspace.files[file["id"]]
    assert (file["mimetype"], stored.alt_text) == ("image/png", "Expected cost against expected time")
    assert stored.content.startswith(b"\x89PNG\r\n\x1a\n")
    assert not any(one.files for one in stage.ws.channel_messages("#gpu"))


async def test_a_plan_without_an_option_has_no_chart(stage: Stage) -> None:
    await stage.command("alice", "/gpu plan 4090 6h price=$0.001")
    assert "no offer fits now" in all_text(stage.ws.ephemerals("alice")[-1])
    assert stage.calls("files.getUploadURLExternal") == []


async def test_an_app_that_may_not_upload_says_so_and_shows_the_plan(stage: Stage) -> None:
    stage.fault("files.getUploadURLExternal", "error", error="missing_scope")
    await stage.command("alice", "/gpu plan 4090 6h")
    told = [all_text(one) for one in stage.ws.ephemerals("alice")]
    assert any("Plan for" in one for one in told)
    assert "The plan's chart could not be shown (missing_scope)." in told[-1]


async def test_an_upload_that_is_not_taken_is_told(stage: Stage) -> None:
    stage.fault("files.completeUploadExternal", "error", error="file_not_found")
    await stage.command("alice", "/gpu plan 4090 6h")
    assert "could not be shown" in all_text(stage.ws.ephemerals("alice")[-1])


async def test_the_form_shows_the_plan_of_what_is_typed_and_asks_for_nothing(stage: Stage) -> None:
    form = await plan_button(stage, {"work": RUN, "typed": "H100, A100-80GB"})
    told = shown(stage)
    for word in ("Plan\n", "*#1*", "expected (", "Assumed:", "tokens"):
        assert word in told
    assert charts(stage, "alice")
    books = await stage.w.books()
    assert not books.requests
    view = stage.ws.view("alice")
    assert view is not None
    assert view.callback_id == "plan"
    assert view.previous_id == form.id
    assert stage.ws.ephemerals("alice") == []


async def test_the_form_may_be_planned_before_anything_is_typed(stage: Stage) -> None:
    await plan_button(stage, {})
    assert "*#1*" in shown(stage)


async def test_what_cannot_be_read_is_said_on_top_of_the_form(stage: Stage) -> None:
    await plan_button(stage, {"hours": "soon", "typed": "4090"})
    assert "This cannot be planned yet." in shown(stage)
    assert charts(stage, "alice") == []


async def test_a_form_that_was_closed_gets_the_plan_as_a_message(stage: Stage) -> None:
    stage.fault("views.update", "error", error="not_found")
    await plan_button(stage, {"typed": "4090", "hours": "6h"})
    assert "Plan for a machine for 6 hours" in all_text(stage.ws.ephemerals("alice")[-1])


async def test_nothing_fits_is_said_in_the_dialog_with_what_would_help(stage: Stage) -> None:
    await plan_button(stage, {"typed": "4090", "hours": "6h", "price": "$0.001"})
    assert "no offer fits now" in shown(stage)
    assert "fits" in shown(stage)


async def test_a_request_that_finds_nothing_says_what_would_open_the_market(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 1x4090 2h price=$0.001")
    assert "No offer fits now. With price=$" in all_text(message)
    assert "fits:" in all_text(message)
    (request,) = (await stage.w.books()).requests
    await stage.command("alice", f"/gpu status {request.id[-6:]}")
    assert "No offer fits now. With price=$" in all_text(stage.ws.ephemerals("alice")[-1])
