"""Show the market, plan and compare runs, and show each cloud's profile; these routes rent nothing."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from bot.api.dependencies import Dependencies, Deps, MarketReader, refusals
from bot.api.problems import FieldProblem, ProblemRaised
from bot.api.schemas.market import LARGEST_PAGE, CloudOut, CompareIn, CompareOut, InventoryQuery, PlanOut, ProfileOut
from bot.api.streams import CountedStream, count_one
from bot.rules.grammar.job import everything
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.market.disk import disk_gb
from bot.rules.market.sort_key import SortKey
from bot.rules.plans.comparison_text import markdown, to_json
from bot.rules.policy.policy import Policy
from bot.rules.values.reply_code import ReplyCode
from bot.services.market.answers import completeness_of
from bot.services.market.catalog import MarketListing
from bot.services.market.document import MarketPage, market_page, pieces, read_cursor
from bot.services.plans import work_comparison
from bot.services.plans.chart import chart as draw
from bot.services.plans.deliverables import cost_estimate, gpu_plan, instance_manifest
from bot.services.plans.job_file import BadJob, read_plan
from bot.services.plans.planner import Compared, Planned, compare_market
from bot.services.plans.sized_document import sizing_document
from bot.services.plans.sizing import plan as make_plan
from bot.services.plans.tables import comparison_tables, plan_table
from bot.services.plans.work_comparison import ComparedWork, compare_work_now
from bot.services.runtime.commands import Reply
from providers.profiles import model

router = APIRouter(prefix="/api/v1", tags=["market"])


def read_words(command: str, words: dict[str, tuple[str, str]], deps: Deps) -> ParsedCommand:
    """Parse `field → (word, value)` with the grammar of `/gpu`; raises `ProblemRaised` with the wrong field."""
    parsed = parse(command, deps.ctx.policy, words.values())
    if isinstance(parsed, GrammarError):
        field = list(words)[parsed.pair - 1] if parsed.pair else ""
        wrong = [FieldProblem(field=field, sentence=parsed.message)]
        raise ProblemRaised(Reply(False, parsed.code, parsed.message), fields=wrong)
    return parsed


@router.get(
    "/inventory",
    response_model=MarketPage,
    responses={**refusals(410), 304: {"description": "The prices are the same as those of If-None-Match."}},
)
async def inventory(
    deps: Deps,
    who: MarketReader,
    query: Annotated[InventoryQuery, Query()],
    if_none_match: Annotated[
        str | None,
        Header(max_length=1000, description="The ETag of an answer that you still have: 304 when nothing has changed."),
    ] = None,
) -> Any:
    """List what every cloud sells now. Pages that follow one another show the prices of one moment.

    `next_cursor` names that moment and is valid for 10 minutes at the process that gave it; afterwards the answer is
    410, and a call without `cursor` starts anew. `limit=all` returns everything in one answer, which is sent piece by
    piece.
    """
    given = {name: value for name, value in query.model_dump(exclude={"cursor", "limit", "words"}).items() if value}
    if "min_vram" in given:
        given["min_vram"] = f"{given['min_vram']}GB+" if given["min_vram"].isdigit() else given["min_vram"]
    words = {name: ("memory" if name == "min_vram" else name, value) for name, value in given.items()}
    parsed = read_words(f"inventory {query.words}", words, deps)
    ctx, limit = deps.ctx, None if query.limit == "all" else query.limit
    wanted, sort = parsed.job or everything(ctx.policy), parsed.sort or SortKey.TOTAL
    if query.cursor is not None:
        listing, start = _pinned(deps, query.cursor)
        asked = (replace(wanted, disk_gb=disk_gb(wanted, ctx.policy)), sort)
        if (words or query.words) and asked != (listing.job, listing.sort):
            raise _wrong_cursor(ReplyCode.INVALID, "This cursor belongs to another search; leave it out.")
    elif limit is None or limit > LARGEST_PAGE:
        listing, start = await ctx.catalog.inventory(wanted, ctx.policy, sort), 0
    else:
        ready = await deps.market.inventory(ctx, wanted, sort, limit)
        headers = {"ETag": ready.etag, "Cache-Control": "private, no-cache"}
        if if_none_match and ready.etag in [one.strip().removeprefix("W/") for one in if_none_match.split(",")]:
            return Response(status_code=304, headers=headers)
        return Response(ready.body, headers=headers, media_type="application/json")
    if limit is not None and limit <= LARGEST_PAGE:
        return Response(market_page(listing, start, limit).model_dump_json(), media_type="application/json")
    count_one(deps.streams, who.key_id)
    rows = pieces(listing, start, limit)
    return CountedStream(deps.streams, who.key_id, rows, "application/json", {"Cache-Control": "private, no-cache"})


def _pinned(deps: Dependencies, cursor: str) -> tuple[MarketListing, int]:
    """Return the listing that a cursor names, and the row where its page begins. Raises `ProblemRaised`: 410."""
    name, start = read_cursor(cursor)
    listing = deps.ctx.catalog.snapshots.named(name)
    if listing is None:
        sentence = (
            "The prices of this cursor are no longer kept: cursors are valid for 10 minutes, at the process that gave "
            "them. Start again without cursor, or send limit=all for everything in one answer."
        )
        raise _wrong_cursor(ReplyCode.CURSOR_EXPIRED, sentence)
    return listing, start


def _wrong_cursor(code: ReplyCode, sentence: str) -> ProblemRaised:
    return ProblemRaised(Reply(False, code, sentence), fields=[FieldProblem(field="cursor", sentence=sentence)])


@router.post("/plans", responses=refusals())
async def plan(
    deps: Deps,
    _who: MarketReader,
    document: JobDocument,
    chart: Annotated[bool, Query(description="true: with a picture of the plan, a PNG in base64.")] = False,
) -> PlanOut:
    """Plan a training run: memory, time and cost on every offer. Rents nothing.

    A budget without a model asks which model it trains: the answer then has `sizing`, and the plan of its first model.
    """
    ctx = deps.ctx
    try:
        wanted = read_plan(document, ctx.policy)
    except BadJob as error:
        raise refused(error) from error
    made = await make_plan(ctx.catalog, ctx.clock, wanted, ctx.policy)
    # Drawing computes for a good part of a second; in a thread it delays no other answer.
    return await asyncio.to_thread(plan_out, made, ctx.policy, with_chart=chart)


def plan_out(planned: Planned, policy: Policy, *, with_chart: bool = False) -> PlanOut:
    """Convert a plan to the answer of the API."""
    return PlanOut(
        chart=base64.b64encode(draw(planned)) if with_chart else None,
        estimate=cost_estimate(planned),
        manifest=instance_manifest(planned, policy),
        page=gpu_plan(planned),
        report=plan_table(planned),
        answers=[CloudOut.model_validate(one) for one in planned.answers],
        completeness=completeness_of(planned.answers),
        sizing=None if planned.sized is None else sizing_document(planned.sized),
    )


def refused(error: BadJob) -> ProblemRaised:
    """Convert the error of a job that cannot be read to a refusal."""
    return ProblemRaised(
        Reply(False, error.code, str(error)), fields=[FieldProblem(field=error.field, sentence=str(error))]
    )


@router.post("/compare", responses=refusals())
async def compare(deps: Deps, _who: MarketReader, body: CompareIn) -> CompareOut:
    """Compare dollars per run and runs per budget on every GPU for sale and in other environments. Rents nothing.

    With a model, the same work is compared: dollars of the run and of a million tokens on every GPU, and which GPUs
    cannot run it.
    """
    parsed = read_words(f"compare {body.line}", {f"words.{k}": (k, v) for k, v in body.words.items() if v}, deps)
    if parsed.job is not None:
        return work_out(await compare_work_now(deps.ctx.catalog, deps.ctx.clock, parsed.job, deps.ctx.policy))
    if parsed.question is None:
        raise ValueError("a comparison without a question")
    return compared_out(await compare_market(deps.ctx.catalog, deps.ctx.clock, parsed.question, deps.ctx.policy))


def compared_out(compared: Compared) -> CompareOut:
    """Convert a comparison to the answer of the API."""
    return CompareOut(
        comparison=to_json(compared.found),
        answers=[CloudOut.model_validate(one) for one in compared.answers],
        completeness=completeness_of(compared.answers),
        ages=list(compared.ages),
        page=markdown(compared.found),
        report=comparison_tables(compared),
    )


def work_out(compared: ComparedWork) -> CompareOut:
    """Convert a comparison of work to the answer of the API."""
    return CompareOut(
        comparison=work_comparison.to_json(compared.found),
        answers=[CloudOut.model_validate(one) for one in compared.answers],
        completeness=completeness_of(compared.answers),
        ages=list(compared.ages),
        page=work_comparison.markdown(compared),
        report=work_comparison.report(compared),
    )


@router.get("/profiles", responses=refusals())
async def profiles(_deps: Deps, _who: MarketReader) -> list[ProfileOut]:
    """List the profile of each cloud: how it bills, and how billing stops there."""
    return [_profile(name) for name in model.names()]


@router.get("/profiles/{cloud}", responses=refusals(404))
async def one_profile(
    _deps: Deps, _who: MarketReader, cloud: Annotated[str, Path(description="The cloud's name.")]
) -> ProfileOut:
    """Show the profile of one cloud with its whole text."""
    if cloud not in model.names():
        known = ", ".join(model.names())
        raise ProblemRaised(
            Reply(False, ReplyCode.UNKNOWN_PROFILE, f"There is no profile {cloud[:40]}; there are {known}.")
        )
    return _profile(cloud)


def _profile(name: str) -> ProfileOut:
    found = model.load(name)
    return ProfileOut(
        cloud=name,
        kind=found.front.kind.value,
        stops_billing=found.front.meter_stop_verb.value,
        spot=found.front.spot_available,
        text=(model.FOLDER / f"{name}.md").read_text(encoding="utf-8"),
    )
