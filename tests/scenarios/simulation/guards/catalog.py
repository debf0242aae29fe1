"""All guards of the laws, each with the edit that removes it: a seed or a test must notice when one is missing.

An edit is a piece of the product's own text and what stands there instead. `mutated.py` plays seeds, or runs a test,
with the edit made, in a process of its own, so that the product has no switch for it.
"""

from __future__ import annotations

from tests.scenarios.simulation.guards.buying import BUYING
from tests.scenarios.simulation.guards.ending import ENDING
from tests.scenarios.simulation.guards.money import MONEY
from tests.scenarios.simulation.guards.restoring import RESTORING
from tests.scenarios.simulation.guards.work import WORK

GUARDS = (*BUYING, *ENDING, *MONEY, *RESTORING, *WORK)
