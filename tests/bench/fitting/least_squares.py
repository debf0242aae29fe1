"""Non-negative least squares in plain Python, small enough to read: a dozen columns, some hundred rows."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[float]


def non_negative(rows: Sequence[Row], targets: Sequence[float], ridge: float, rounds: int = 400) -> list[float]:
    """The x >= 0 that minimises |rows x - targets|^2 + ridge |x|^2, by coordinate descent."""
    width = range(len(rows[0]))
    gram = [[sum(row[i] * row[j] for row in rows) + (ridge if i == j else 0.0) for j in width] for i in width]
    aim = [sum(row[i] * target for row, target in zip(rows, targets, strict=True)) for i in width]
    found = [0.0 for _ in width]
    for _ in range(rounds):
        moved = 0.0
        for i in width:
            slope = aim[i] - sum(gram[i][j] * found[j] for j in width)
            new = max(found[i] + slope / gram[i][i], 0.0) if gram[i][i] > 0 else 0.0
            moved, found[i] = max(moved, abs(new - found[i])), new
        if moved < 1e-9:
            break
    return found


def relative(rows: Sequence[Row], targets: Sequence[float], ridge: float, rounds: int = 5) -> list[float]:
    """The x >= 0 whose sums rows x are near `targets` in proportion: the logarithm's error, made linear again each
    round. Columns are scaled by their mean first, so that the ridge treats them alike."""
    guess = list(targets)
    found: list[float] = []
    for _ in range(rounds):
        weight = [(one * other) ** -0.5 for one, other in zip(guess, targets, strict=True)]
        scaled = [[value * factor for value in row] for row, factor in zip(rows, weight, strict=True)]
        means = [sum(row[i] for row in scaled) / len(scaled) or 1.0 for i in range(len(rows[0]))]
        unit = [[value / mean for value, mean in zip(row, means, strict=True)] for row in scaled]
        aim = [target * factor for target, factor in zip(targets, weight, strict=True)]
        found = [x / mean for x, mean in zip(non_negative(unit, aim, ridge * len(rows)), means, strict=True)]
        guess = [sum(x * value for x, value in zip(found, row, strict=True)) for row in rows]
    return found
