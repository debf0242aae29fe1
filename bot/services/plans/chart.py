"""Draw the chart of a plan, and bar charts for where Slack has no chart of its own.

The chart shows expected cost against expected hours, with the Pareto front: the options that nothing beats in both.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from bot.services.plans.planner import Planned

_SIZE_IN = (7.2, 4.4)
#: Twice the pixels of a screen at 100 dots per inch, for screens that show two per point.
_DPI = 220


def front(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other beats or equals in both numbers, by the first."""
    kept: list[tuple[float, float]] = []
    for point in sorted(set(points)):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


def chart(planned: Planned) -> bytes:
    """Draw a plan as a PNG. The ranges run from the best to the worst total; spot offers are drawn open."""
    # The library takes a second to load, and only a plan's files need it.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    options = planned.ranked.options
    for one in options:
        costs = one.estimate
        hours, expected = float(costs.hours), float(costs.expected_usd)
        below, above = expected - float(costs.best_usd), float(costs.worst_usd) - expected
        axes.errorbar(hours, expected, yerr=[[below], [above]], color="#9aa5a0", capsize=3, linewidth=1, zorder=1)
        face = "white" if one.offer.spot else "#1d3a2f"
        axes.scatter(hours, expected, s=42, color=face, edgecolors="#1d3a2f", zorder=3)
        label = f"#{one.rank} {one.offer.gpu_count}x {one.offer.gpu}"
        axes.annotate(label, (hours, expected), xytext=(6, 5), textcoords="offset points", fontsize=8)
    line = front((float(one.estimate.hours), float(one.estimate.expected_usd)) for one in options)
    if len(line) > 1:
        axes.plot(*zip(*line, strict=True), color="#c4622d", linewidth=1.2, zorder=2, label="nothing is better in both")
        axes.legend(loc="best", fontsize=8, frameon=False)
    axes.set_xlabel("expected hours")
    axes.set_ylabel("total in dollars, best to worst")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    if not options:
        axes.text(0.5, 0.5, "no offer fits now", ha="center", va="center", transform=axes.transAxes)
    return _png(figure)


def bars(title: str, points: Sequence[tuple[str, float]], units: tuple[str, str]) -> bytes:
    """Draw one bar per point as a PNG, each with its name and its amount; `units` are the titles of the two axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=_SIZE_IN, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    drawn = axes.bar([label for label, _ in points], [value for _, value in points], color="#1d3a2f")
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


def _png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
