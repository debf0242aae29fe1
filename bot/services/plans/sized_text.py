"""Write the models that a budget trains: the answer, a table, and what the scaling law does not know."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from bot.rules.market.model_for_budget import Sized, SizedModel, written
from bot.rules.sizing.scaling_law import beyond_fit
from bot.rules.values.phrases import about_hours, hours, rate, usd
from bot.rules.values.text import in_markdown

HEAD = ("#", "GPU", "cloud", "model", "tokens", "loss", "range", "time", "total", "$/h")
#: The columns of numbers.
RIGHT = (0, 3, 4, 5, 7, 8, 9)

_LAW = (
    "The loss is in nats per token, by Chinchilla's scaling law as refitted in arXiv:2404.10102.",
    "It was fitted on models of 70M to 16B parameters and 5B to 500B tokens of web text.",
    "It does not know your data, repeated data or other architectures. Compare these losses only with each other.",
)


def cells(place: int, one: SizedModel) -> tuple[str, ...]:
    """Return one line of the table, in the order of `HEAD`."""
    offer, costs = one.option.offer, one.option.estimate
    return (
        str(place),
        f"{offer.gpu_count}x {offer.gpu}{' spot' if offer.spot else ''}",
        offer.cloud,
        written(one.params),
        written(one.tokens),
        f"{one.loss:.2f}",
        f"{one.loss_low:.2f}–{one.loss_high:.2f}",
        about_hours(costs.hours),
        usd(one.total_usd),
        rate(offer.price_usd_h or Decimal(0)).removesuffix("/h"),
    )


def headline(sized: Sized) -> str:
    """Return the answer in one sentence, or that the budget trains nothing here."""
    if not sized.models:
        return f"Nothing for sale now trains a model for {usd(sized.question.budget_usd)}{_inside(sized)}."
    one = sized.models[0]
    _, gpus, cloud, size, tokens, loss, between, time, total, _ = cells(1, one)
    run = f"About {size} parameters on {tokens} tokens with {gpus} at {cloud}"
    return f"{run}, {time}, {total}, expected loss {loss} ({between})."


def _inside(sized: Sized) -> str:
    goal_h = sized.question.work.goal_hours
    return "" if goal_h is None else f" in {hours(goal_h)}"


def sentences(sized: Sized) -> tuple[str, ...]:
    """Return the answer and what it rests on, one sentence each."""
    return (headline(sized), *notes(sized))


def notes(sized: Sized) -> tuple[str, ...]:
    """Return what the answer rests on; nothing where there is no answer."""
    if not sized.models:
        return ()
    first, work = sized.models[0], sized.question.work
    costs = first.option.estimate
    found = [
        "The range of the loss holds four of five runs: throughput and the law's floor vary, the money does not.",
        f"Run to the last token, the first may cost {usd(costs.worst_usd + first.serving_usd)} at worst.",
    ]
    if work.served_tokens is not None:
        found.append(
            f"{usd(first.serving_usd)} of the total are for {written(work.served_tokens)} tokens that it serves later, "
            "on the same GPUs."
        )
    if work.total_tokens is not None and first.tokens >= work.total_tokens:
        found.append("All of your data are used once; with more, the same money would give a lower loss.")
    return (*found, *beyond_fit(first.params, first.tokens), *_LAW)


def sized_lines(sized: Sized) -> Iterator[str]:
    """Write the models as a part of the page, in Markdown."""
    yield in_markdown(headline(sized))
    if not sized.models:
        yield ""
        return
    yield from ("", f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}")
    for place, one in enumerate(sized.models, 1):
        yield f"| {' | '.join(in_markdown(cell) for cell in cells(place, one))} |"
    yield ""
    yield from (f"- {in_markdown(sentence)}" for sentence in notes(sized))
    yield from ("", "## Offers for the first of them", "")
