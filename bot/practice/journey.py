"""Choose how far a travelling clock moves at once, so that everything due on the way happens when it is due."""

from __future__ import annotations

from typing import Final

#: The longest step: bills, check-ins and listings with intervals of their own must run in between.
STRIDE_S: Final = 600.0
#: At first the steps follow rows that are due again within seconds, such as a machine that boots or ends. A row that is
#: due again without end must not turn half a day into thousands of steps.
CLOSELY: Final = 120
NEAREST_S, LATER_S = 1.0, 60.0


def step_s(left_s: float, due_in_s: float | None, steps: int) -> float:
    """Return the seconds of the next step of a journey with `left_s` to go: to what is due next, or one stride.

    `due_in_s` is how far away the next due row is, None when there is none; `steps` were made already.
    """
    nearest_s = NEAREST_S if steps < CLOSELY else LATER_S
    wanted_s = STRIDE_S if due_in_s is None else min(STRIDE_S, max(due_in_s, nearest_s))
    return min(left_s, wanted_s)
