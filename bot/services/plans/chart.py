"""Draw the chart of a plan, and bar charts for where Slack has no chart of its own.

Described work is drawn as expected cost against expected time, with the Pareto front: the offers that nothing beats in
both. Below are the chances of the first offers: to be done by a time, and to cost no more than an amount. A request for
hours is drawn as the total of each offer, because there every offer takes the same time.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from bot.rules.market.ranking import RankedOption
from bot.rules.values.phrases import usd
from bot.services.plans.planner import Planned

_SIZE_IN = (7.2, 4.4)
#: The height with the two curves below.
_WITH_CURVES_IN = 7.6
#: So many offers, the first ones, have a curve, each in its own colour and line.
_CURVES = (("#1d3a2f", "-"), ("#c4622d", "--"), ("#3b6fb0", "-."))
_INK = "#1d3a2f"
_BAR = "#7fa593"
_RANGE = "#9aa5a0"
#: Lines above and below its point in which a name may stand.
_LINES = 4
#: Twice the pixels of a screen at 100 dots per inch, for screens that show two per point.
_DPI = 220


def front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats or equals in both numbers, by the first."""
    kept: list[tuple[float, float]] = []
    for point in sorted(set(points)):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def title(planned: Planned) -> str:
    """Say what the chart of a plan shows."""
    return "Expected cost against expected time" if planned.work is not None else "Total cost of each offer"


def chart(planned: Planned) -> bytes:
    """Draw a plan as a PNG: described work as cost against time, hours alone as one bar per offer."""
    options = planned.ranked.options
    curved = [one for one in options if one.estimate.outlook is not None][: len(_CURVES)]
    figure, axes = _drawing()
    if curved:
        axes = _curves(figure, axes, curved)
    if not options:
        axes.text(0.5, 0.5, "no offer fits now", ha="center", va="center", transform=axes.transAxes)
    elif planned.work is not None:
        _against_time(figure, axes, options)
    else:
        _totals(axes, options)
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def _against_time(figure: Any, axes: Any, options: Sequence[RankedOption]) -> None:
    """Draw each offer with the range of its total; spot offers are drawn open."""
    for one in options:
        costs = one.estimate
        hours, expected = float(costs.hours), float(costs.expected_usd)
        low, high = _range(one)
        below, above = max(expected - low, 0.0), max(high - expected, 0.0)
        axes.errorbar(hours, expected, yerr=[[below], [above]], color=_RANGE, capsize=3, linewidth=1, zorder=1)
        axes.scatter(hours, expected, s=42, color="white" if one.offer.spot else _INK, edgecolors=_INK, zorder=3)
    line = front((float(one.estimate.hours), float(one.estimate.expected_usd)) for one in options)
    if len(line) > 1:
        name = "Pareto line: no offer is both cheaper and faster"
        axes.plot(*zip(*line, strict=True), color="#c4622d", linewidth=1.2, zorder=2, label=name)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.12), fontsize=8, frameon=False)
    axes.set_xlabel("expected time (hours)")
    axes.set_ylabel("total cost (US dollars):\nmean, bar from 10 % to 90 % of runs")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.25)
    axes.set_xlim(left=0)
    _name_points(figure, axes, options)


def _range(one: RankedOption) -> tuple[float, float]:
    """Return the dollars that 10 % and 90 % of all runs stay below; the mean twice where nobody knows."""
    seen, expected = one.estimate.outlook, float(one.estimate.expected_usd)
    return (expected, expected) if seen is None else (float(seen.usd_low), float(seen.usd_high))


def _curves(figure: Any, axes: Any, options: Sequence[RankedOption]) -> Any:
    """Draw the chances of some offers below, and return the axes above them for the rest of the chart."""
    figure.set_size_inches(_SIZE_IN[0], _WITH_CURVES_IN)
    axes.remove()
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
    above, done, paid = (figure.add_subplot(place) for place in (grid[0, :], grid[1, 0], grid[1, 1]))
    for one, (color, line) in zip(options, _CURVES, strict=False):
        points = () if one.estimate.outlook is None else one.estimate.outlook.curve
        shares = [float(point.share) * 100 for point in points]
        name = f"{_name(one)}{' spot' if one.offer.spot else ''} at {one.offer.cloud}"
        drawn = ((done, [float(point.hours) for point in points]), (paid, [float(point.usd) for point in points]))
        for panel, values in drawn:
            panel.plot(values, shares, color=color, linestyle=line, linewidth=1.5, label=name)
    for panel, unit in ((done, "time from the launch (hours)"), (paid, "total cost (US dollars)")):
        panel.set_xlabel(unit)
        panel.set_ylim(0, 100)
        panel.grid(color="#e3e8e5", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    done.set_ylabel("chance to be done by then (%)")
    paid.set_ylabel("chance to cost no more (%)")
    figure.legend(*done.get_legend_handles_labels(), loc="outside lower center", ncols=1, fontsize=8, frameon=False)
    return above


def _name(one: RankedOption) -> str:
    return f"#{one.rank} {one.offer.gpu_count}x {one.offer.gpu}"


def _name_points(figure: Any, axes: Any, options: Sequence[RankedOption]) -> None:
    """Write each offer's name beside its point, where it covers no other name and, if it can be, no range."""
    figure.draw_without_rendering()  # Only then is known how large a text is.
    ranges = [_range_box(axes, one) for one in options]
    names: list[Any] = []
    for one in options:
        label = _name(one)
        at = (float(one.estimate.hours), float(one.estimate.expected_usd))
        name = axes.annotate(label, at, xytext=(6, 5), textcoords="offset points", fontsize=8)
        # A name across the thin line of a range can be read, one across another name can't.
        if not _placed(axes, name, [*names, *ranges]):
            _placed(axes, name, names)
        names.append(name.get_window_extent())


def _placed(axes: Any, name: Any, taken: Sequence[Any]) -> bool:
    """Move a name to the first place beside its point that is inside the axes and free; False where none is."""
    inside = axes.get_window_extent()
    for line in range(_LINES):
        for side, up in ((1, 5 + 11 * line), (1, -13 - 11 * line), (-1, 5 + 11 * line), (-1, -13 - 11 * line)):
            name.set_ha("left" if side > 0 else "right")
            name.set_position((6 * side, up))
            box = name.get_window_extent()
            within = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0
            if within and not any(box.overlaps(other) for other in taken):
                return True
    return False


def _range_box(axes: Any, one: RankedOption) -> Any:
    """Return where the range of an offer is drawn, in pixels."""
    from matplotlib.transforms import Bbox  # noqa: PLC0415

    hours, half_px = float(one.estimate.hours), 8
    (x, low), (_, high) = axes.transData.transform([(hours, dollars) for dollars in _range(one)])
    return Bbox.from_extents(x - half_px, low, x + half_px, high)


def _totals(axes: Any, options: Sequence[RankedOption]) -> None:
    """Draw one bar per offer, the recommended one on top: the expected total, with its range from best to worst."""
    places = range(len(options))
    expected = [float(one.estimate.expected_usd) for one in options]
    below = [most - float(one.estimate.best_usd) for one, most in zip(options, expected, strict=True)]
    above = [float(one.estimate.worst_usd) - least for one, least in zip(options, expected, strict=True)]
    error = {"ecolor": "#c4622d", "capsize": 3, "linewidth": 1}
    axes.barh(places, expected, xerr=[below, above], color=_BAR, error_kw=error)
    for place, one in zip(places, options, strict=True):
        worst = float(max(one.estimate.worst_usd, one.estimate.expected_usd))
        said = usd(one.estimate.expected_usd)
        said += f" to {usd(one.estimate.worst_usd)}" if one.estimate.worst_usd > one.estimate.expected_usd else ""
        axes.annotate(
            said, (worst, place), xytext=(6, 0), textcoords="offset points", fontsize=8, va="center", parse_math=False
        )
    axes.set_yticks(places, [_offer(one) for one in options], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.set_xlabel("total cost (US dollars): expected, with its range from best to worst")
    axes.set_ylabel("offer, the recommended one first")


def _offer(one: RankedOption) -> str:
    return f"{_name(one)}\n{one.offer.cloud}{' spot' if one.offer.spot else ''}"


def bars(title: str, points: Sequence[tuple[str, float]], units: tuple[str, str]) -> bytes:
    """Draw one bar per point as a PNG, each with its name and its amount; `units` are the titles of the two axes."""
    figure, axes = _drawing()
    drawn = axes.bar([label for label, _ in points], [value for _, value in points], color=_BAR)
    # More than ten amounts are wider than their bars, so they stand upright.
    upright = len(points) > 10
    axes.bar_label(drawn, fmt="{:,.2f}", padding=3, fontsize=7 if upright else 8, rotation=90 if upright else 0)
    axes.margins(y=0.2)
    axes.set_title(title)
    axes.set_xlabel(units[0])
    axes.set_ylabel(units[1])
    axes.tick_params(axis="x", rotation=90 if upright else 0, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return _png(figure)


def _drawing() -> tuple[Any, Any]:
    """Return an empty figure and its axes."""
    # The library takes a second to load, and only a picture needs it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    return figure, axes


def _png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
