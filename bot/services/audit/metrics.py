"""Expose figures of the ledger in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from bot.services.runtime.context import Context
from ledger.queries.metrics import figures, waiting_rows

Labels = Mapping[str, str]


async def exposition(ctx: Context) -> str:
    """Return every figure as it is now, from one consistent read."""
    async with ctx.db.read() as tx:
        found = await figures(tx)
        waiting = await waiting_rows(tx)
    families = [
        _family("requests", "Undecided requests.", (({"state": k}, v) for k, v in found.requests.items())),
        _family("sessions", "Sessions that are not over.", (({"state": k}, v) for k, v in found.sessions.items())),
        _family(
            "instances",
            "Instances that may exist.",
            (({"cloud": cloud, "state": state}, v) for (cloud, state), v in found.instances.items()),
        ),
        _family(
            "usd_per_hour",
            "What running instances cost an hour, as quoted.",
            (({"cloud": cloud}, v) for cloud, v in found.usd_per_hour.items()),
        ),
        _family("booked_usd_total", "Dollars booked as used.", [({}, found.booked_usd)], kind="counter"),
        _family("waiting_rows", "Rows whose work is not done.", (({"work": k}, v) for k, v in waiting.items())),
    ]
    return "".join(line for family in families for line in family)


def _family(
    name: str, about: str, values: Iterable[tuple[Labels, Decimal | int]], kind: str = "gauge"
) -> Iterator[str]:
    full = f"gpu_shopper_{name}"
    yield f"# HELP {full} {about}\n# TYPE {full} {kind}\n"
    for labels, value in sorted(values, key=lambda one: sorted(one[0].items())):
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
        said = f"{value:f}" if isinstance(value, Decimal) else str(value)
        yield f"{full}{{{inside}}} {said}\n" if inside else f"{full} {said}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
