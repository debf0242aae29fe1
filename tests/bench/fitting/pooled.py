"""Partial pooling: linear effects with a prior around 0, and one effect for each group that is drawn around 0.

The plain Bayesian linear model: targets are effects x features + the group's own effect + noise, each with a normal
prior. It is a ridge regression whose ridge follows from the priors, so that a group with few rows is pulled to the mean
of all and one with many stands on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Degrees of freedom of the noise: a row at three deviations counts about a third.
FREEDOM = 4.0
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: its features, the group it belongs to, and the logarithm to explain."""

    features: Mapping[str, float]
    group: str
    target: float


@dataclass(frozen=True, slots=True)
class Prior:
    """Standard deviations: of a feature's effect (`own` for those named), of a group's effect, and of the noise."""

    effect: float
    group: float
    noise: float
    own: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Pooled:
    """The effects that were found."""

    effects: Mapping[str, float]
    groups: Mapping[str, float]

    def mean(self, features: Mapping[str, float], group: str | None = None) -> float:
        """The expected logarithm; without a group, or with an unknown one, the mean over groups."""
        found = sum(self.effects[name] * value for name, value in features.items())
        return found + self.groups.get(group or "", 0.0)


def pool(rows: Sequence[Row], names: Sequence[str], prior: Prior) -> Pooled:
    """The most probable effects, given `rows`. Rows far from all others count less (weights of Student's t)."""
    groups = sorted({row.group for row in rows})
    place = {name: index for index, name in enumerate([*names, *(f"group {one}" for one in groups)])}
    design = np.zeros((len(rows), len(place)))
    for index, row in enumerate(rows):
        for name, value in row.features.items():
            design[index, place[name]] = value
        design[index, place[f"group {row.group}"]] = 1.0
    widths = [prior.own.get(name, prior.effect) for name in names] + [prior.group] * len(groups)
    targets = np.array([row.target for row in rows])
    ridge = np.diag([width**-2 for width in widths])
    trust = np.ones(len(rows))
    found = np.zeros(len(place))
    for _ in range(ROUNDS):
        weighted = design.T * (trust / prior.noise**2)
        found = np.linalg.solve(weighted @ design + ridge, weighted @ targets)
        trust = (FREEDOM + 1) / (FREEDOM + ((targets - design @ found) / prior.noise) ** 2)
    effects = {name: float(found[place[name]]) for name in names}
    return Pooled(effects, {one: float(found[place[f"group {one}"]]) for one in groups})


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lie, between neighbours in proportion."""
    return float(np.quantile(np.array(values), share))
