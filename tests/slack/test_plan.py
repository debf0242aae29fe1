"""Plans in Slack: the table for `/gpu plan`, the button of the form, and the chart that Slack shows."""

from __future__ import annotations

from typing import Any

import pytest

from bot.practice.model import ChatMessage, OpenView
from bot.practice.reader import all_text
from bot.rules.grammar.job import everything
from bot.slack import provision_form
from bot.slack.modals import PRICE_LATER
from bot.slack.provision_form import PROPOSED_GB
from providers.gpus.table import GPUS
from tests.slack.conftest import Stage

RUN = "model=1B tokens=2B seq=2048 batch=512"


def charts(stage: Stage, who: str) -> list[ChatMessage]:
    """The messages with a file in somebody's direct messages with the app."""
    return [one for one in stage.ws.channel_messages(stage.ws.dm_id(who)) if one.files]


def shown(stage: Stage, who: str = "alice") -> str:
    view = stage.ws.view(who)
    assert view is not None
    return all_text(view)


async def opened(stage: Stage) -> OpenView:
    """Open the form."""
    await stage.command("alice", "/gpu provision")
    form = stage.ws.view("alice")
    assert form is not None
    return form


async def plan_button(stage: Stage, values: dict[str, Any]) -> OpenView:
    """Open the form with all its fields, fill in some of them and compare the offers."""
    await stage.click("alice", await opened(stage), "More options")
    form = stage.ws.view("alice")
    assert form is not None
    await stage.as_("alice").click(form, "Compare offers", values=values)
    await stage.settle()
    return form


async def test_a_plan_has_a_chart_that_only_the_requester_sees(stage: Stage) -> None:
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
    assert "No offer fits now" in all_text(stage.ws.ephemerals("alice")[-1])
    assert stage.calls("files.getUploadURLExternal") == []


async def test_a_plan_names_the_cheapest_offer_that_cannot_run_the_image(stage: Stage) -> None:
    await stage.command("alice", "/gpu plan 4090 6h image=rocm/pytorch:latest")
    said = all_text(stage.ws.ephemerals("alice")[-1])
    assert "No offer fits now" in said
    assert "Cheapest per hour, but skipped: $" in said
    assert "RTX4090: the image needs ROCm." in said


@pytest.mark.slow
async def test_a_lighter_method_is_another_run_with_a_line_of_its_own(stage: Stage) -> None:
    await stage.command("alice", "/gpu plan model=1B type=finetune tokens=20M seq=1024")
    said = all_text(stage.ws.ephemerals("alice")[-1])
    assert "LoRA instead (`type=lora`): 1x " in said
    assert "QLoRA instead, with frozen 4-bit weights (`type=qlora`): 1x " in said
    assert "of disk, for the image (20), weights (2) and two checkpoints (28)." in said


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
    form = await plan_button(stage, {"work": RUN, "gpu": "any", "hours": "any", "typed": "H100, A100-80GB"})
    told = shown(stage)
    for word in ("Plan\n", "*#1*", ": *$", "Assumed:", "tokens"):
        assert word in told
    # A chart would be a message that nobody asked for.
    assert charts(stage, "alice") == []
    books = await stage.w.books()
    assert not books.requests
    view = stage.ws.view("alice")
    assert view is not None
    assert view.callback_id == "plan"
    assert view.previous_id == form.id
    assert stage.ws.ephemerals("alice") == []


async def test_the_form_is_compared_as_it_is_proposed(stage: Stage) -> None:
    await plan_button(stage, {})
    assert "Plan for a machine for 2 hours" in shown(stage)
    assert "*#1*" in shown(stage)


async def test_an_empty_form_is_not_priced(stage: Stage) -> None:
    await plan_button(stage, {"gpu": None, "hours": None})
    told = shown(stage)
    assert "Say which GPU" in told
    assert "Say for how long" in told
    assert "$" not in told


async def test_what_cannot_be_read_is_said_on_top_of_the_form(stage: Stage) -> None:
    await plan_button(stage, {"max": "free"})
    assert "Something is missing or wrong." in shown(stage)
    assert charts(stage, "alice") == []


def price(view: OpenView) -> str:
    """The line of the form with what it would cost."""
    (block,) = [one for one in view.blocks if one["block_id"] == "about"]
    return str(block["elements"][0]["text"])


async def test_the_price_follows_what_is_chosen_and_is_the_one_on_the_card(stage: Stage) -> None:
    first = price(await opened(stage))
    assert first.startswith("About *$")
    assert "for 2 hours · 1×" in first
    form = stage.ws.view("alice")
    assert form is not None
    await stage.as_("alice").click(form, "form:hours", value="6h", values={"gpu": "RTX4090"})
    await stage.settle()
    changed = stage.ws.view("alice")
    assert changed is not None
    assert changed.id == form.id
    said = price(changed)
    assert "for 6 hours · 1× RTX4090" in said
    await stage.submit("alice", {})
    amount = said.partition("*")[2].partition("*")[0]
    card = all_text(stage.message())
    assert "RTX4090 for 6 hours" in card
    assert f"about {amount}" in card


async def test_a_preset_fills_the_form_and_leaving_it_proposes_again(stage: Stage) -> None:
    await stage.replaced(presets={"nightly": '2x4090 3h for="nightly training"'})
    form = await opened(stage)
    assert form.blocks[0]["block_id"] == "preset"
    await stage.as_("alice").click(form, "form:preset", value="nightly")
    await stage.settle()
    filled = stage.ws.view("alice")
    assert filled is not None
    assert "for 3 hours · 2× RTX4090" in price(filled)
    await stage.as_("alice").click(filled, "form:preset", value="-")
    await stage.settle()
    empty = stage.ws.view("alice")
    assert empty is not None
    assert "for 2 hours · 1×" in price(empty)
    await stage.as_("alice").click(empty, "form:preset", value="nightly")
    await stage.settle()
    await stage.submit("alice", {})
    card = all_text(stage.message())
    assert "2× RTX4090 for 3 hours" in card
    assert "nightly training" in card


async def test_only_what_is_for_sale_can_be_chosen_each_with_its_price(stage: Stage) -> None:
    form = await opened(stage)
    options = form.blocks[0]["element"]["options"]
    policy = stage.ctx.policy
    listing = await stage.ctx.catalog.inventory(everything(policy), policy)
    sold = {offer.gpu for row in listing.rows for offer in row if offer.price_usd_h}
    assert {one["value"] for one in options} == sold & set(GPUS)
    assert all("GB · from $" in one["text"]["text"] for one in options)
    assert GPUS[form.blocks[0]["element"]["initial_option"]["value"]].memory_gb >= PROPOSED_GB


async def test_the_form_opens_before_slow_clouds_have_answered(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision_form, "OPEN_WAIT_S", 0.0)
    form = await opened(stage)
    (before,) = stage.calls("views.open")
    assert PRICE_LATER in str(before["view"])
    assert price(form).startswith("About *$")
    assert form.blocks[0]["element"]["initial_option"]


async def test_a_form_that_was_closed_gets_the_plan_as_a_message(stage: Stage) -> None:
    form = await opened(stage)
    stage.fault("views.update", "error", error="not_found")
    await stage.as_("alice").click(form, "Compare offers", values={"gpu": "RTX4090", "hours": "6h"})
    await stage.settle()
    assert "Plan for a machine for 6 hours" in all_text(stage.ws.ephemerals("alice")[-1])


async def test_nothing_fits_is_said_in_the_dialog_with_what_would_help(stage: Stage) -> None:
    await plan_button(stage, {"gpu": "RTX4090", "hours": "6h", "price": "$0.001"})
    assert "No offer fits now" in shown(stage)
    assert "fits" in shown(stage)


async def test_a_request_that_finds_nothing_says_what_would_open_the_market(stage: Stage) -> None:
    message = await stage.ask("/gpu provision 1x4090 2h price=$0.001")
    assert "No offer fits now. The cheapest offer that fits needs price=$" in all_text(message)
    assert " at " in all_text(message)
    (request,) = (await stage.w.books()).requests
    await stage.command("alice", f"/gpu status {request.id[-6:]}")
    assert "No offer fits now. The cheapest offer that fits needs price=$" in all_text(stage.ws.ephemerals("alice")[-1])
