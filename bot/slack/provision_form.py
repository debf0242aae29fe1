"""Open the form for a request with what is for sale now, and keep its price up to date while it is filled in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from bot.rules.approvals.approvers import Deed
from bot.rules.grammar.job import everything
from bot.rules.jobs.job import JobRequest
from bot.rules.values.phrases import hours, plural, rate
from bot.services.market.catalog import MarketListing
from bot.services.plans import planner
from bot.slack import forms, modals
from bot.slack.blocks.elements import Message, code, dollars, safe, section
from bot.slack.blocks.offers import place
from bot.slack.blocks.plan import plan, plan_sections
from bot.slack.blocks.private_answer import answer
from bot.slack.handler_context import HandlerContext, HandlerJob
from providers.gpus.table import GPUS

#: How long the form waits for prices before it opens without them: its trigger is valid for three seconds.
OPEN_WAIT_S: Final = 1.0
#: The form proposes the cheapest GPU with at least this memory; a smaller one is too small for most of today's models.
PROPOSED_GB: Final = 24

_CHANNEL: Final = re.compile(r"[CDG][A-Z0-9]{2,20}")


async def open_form(handler: HandlerContext, job: HandlerJob) -> None:
    """Open the form in time, with or without what is for sale, and then show prices in it."""
    policy = handler.ctx.policy
    reading = asyncio.create_task(handler.ctx.catalog.inventory(everything(policy), policy))
    await asyncio.wait({reading}, timeout=OPEN_WAIT_S)
    form = _filled(reading.result()) if reading.done() else modals.ProvisionForm()
    view_id = await handler.show(job, _view(handler, job.message.channel, form), "views.open")
    if not view_id:
        reading.cancel()
        example = code(f"{handler.settings.command} provision 4xA100-80GB 6h for=fine-tune")
        await handler.say(job, Message.of(f"The form could not be opened in time. Try again, or type {example}"))
        return
    form = _filled(await reading)
    form = replace(form, price=await price(handler, {"gpu": form.gpu, "hours": form.hours}))
    await handler.change(view_id, _view(handler, job.message.channel, form))


async def click(handler: HandlerContext, job: HandlerJob) -> None:
    """Process a click in the form: another choice, *More options*, or *Compare offers*."""
    if refused := await handler.ineligible(job, Deed.READ):
        await handler.say(job, answer(refused), asked_in(job))
        return
    if job.message.action == "plan:form":
        await _compare(handler, job)
        return
    policy = handler.ctx.policy
    listing = await handler.ctx.catalog.inventory(everything(policy), policy)
    values, preset = job.message.values, forms.field_text(job.message.values, "preset")
    preset = preset if preset in policy.presets else ""
    if job.message.action == "form:preset":
        # A preset says which GPU and for how long, until the person says something else.
        filled = _filled(listing)
        said = (modals.ANY, modals.ANY, "") if preset else (filled.gpu, filled.hours, "no")
        values = {**values, **dict(zip(("gpu", "hours", "spot"), said, strict=True))}
    form = replace(
        modals.ProvisionForm(for_sale(listing), forms.field_text(values, "gpu"), forms.field_text(values, "hours")),
        preset=preset,
        more="count" in values or job.message.action == "form:more",
        price=await price(handler, values),
    )
    # A model that was sold out meanwhile stays chosen.
    if form.gpu in GPUS and form.gpu not in dict(form.gpus):
        form = replace(form, gpus=[(form.gpu, form.gpu), *form.gpus])
    await handler.change(job.message.view_id, _view(handler, job.message.meta, form))


async def price(handler: HandlerContext, values: Mapping[str, Any]) -> str:
    """Return what the chosen GPUs would cost now, as mrkdwn: the number that the request's card will show."""
    ctx = handler.ctx
    wanted = forms.read_job(values, ctx.policy)
    if not isinstance(wanted, JobRequest):
        return "Choose a GPU and a time to see the price."
    found = await planner.plan(ctx.catalog, ctx.clock, wanted, ctx.policy)
    if found.best is None:
        return " ".join([safe(found.nothing), *(safe(one.sentence, 300) for one in found.relaxations[:1])])
    estimate, offer = found.best.estimate, found.best.offer
    what = f"{offer.gpu_count}× {safe(offer.gpu, 60)}"
    return f"About *{dollars(estimate.expected_usd)}* for {hours(estimate.hours)} · {what} · {safe(place(offer))}"


def for_sale(listing: MarketListing) -> list[tuple[str, str]]:
    """List `(name, label with the least price per GPU)` of every model that is for sale, the cheapest first."""
    least: dict[str, Decimal] = {}
    for offer, *_ in listing.rows:
        # A free quota is left out: it runs a command, so it needs more than this form asks.
        if offer.gpu in GPUS and offer.price_usd_h:
            each = offer.price_usd_h / offer.gpu_count
            least[offer.gpu] = min(each, least.get(offer.gpu, each))
    cheapest_first = sorted(least, key=lambda name: (least[name], name))
    return [(name, f"{name} · {GPUS[name].memory_gb} GB · from {rate(least[name])}") for name in cheapest_first]


def proposed(gpus: Sequence[tuple[str, str]]) -> str:
    """Return the model that the form proposes; empty when nothing is for sale."""
    names = [name for name, _ in gpus]
    return next((name for name in names if GPUS[name].memory_gb >= PROPOSED_GB), names[0] if names else "")


def asked_in(job: HandlerJob) -> str:
    """Return the conversation in which a form was opened; the person's own one when the form does not name it."""
    return job.message.meta if _CHANNEL.fullmatch(job.message.meta) else job.message.user


def _filled(listing: MarketListing) -> modals.ProvisionForm:
    gpus = for_sale(listing)
    return modals.ProvisionForm(gpus, proposed(gpus))


def _view(handler: HandlerContext, channel: str, form: modals.ProvisionForm) -> modals.View:
    return modals.provision(channel, handler.ctx.clouds, handler.ctx.policy, form)


async def _compare(handler: HandlerContext, job: HandlerJob) -> None:
    """Show the plan of the form on top of it, or privately in its conversation where that is impossible."""
    ctx = handler.ctx
    wanted = forms.read_job(job.message.values, ctx.policy)
    if not isinstance(wanted, JobRequest):
        problems = "\n".join(f"• {safe(sentence)}" for sentence in wanted.values())
        await handler.show(job, modals.planned([section(f"Something is missing or wrong.\n{problems}")]), "views.push")
        return
    asked = [cloud for cloud in ctx.clouds if not wanted.candidates or cloud in wanted.candidates]
    waiting = modals.planned([section(f"Asking {plural(len(asked), 'cloud')}…")])
    view_id = await handler.show(job, waiting, "views.push")
    found = await planner.plan(ctx.catalog, ctx.clock, wanted, ctx.policy)
    if not (view_id and await handler.change(view_id, modals.planned(plan_sections(found)))):
        await handler.say(job, plan(found, handler.settings.command), asked_in(job))
