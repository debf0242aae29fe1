"""Check that a cloud can be bought from, before offers are posted and before each create, and cache the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from bot.rules.checkpoints.stores import missing_variables, not_listed
from ledger.kernel.clock import Clock
from providers.contract import Preflight, Provider
from providers.errors import (
    InsufficientFunds,
    NotSent,
    OutcomeUnknown,
    RateLimited,
    Unavailable,
    UnexpectedResponse,
)

#: For this long a good result is used; a bad one is checked again sooner, because somebody may be fixing the account.
GOOD_S = 60.0
BAD_S = 10.0

#: Codes of checks that ended without an answer about the account.
UNCLEAR = frozenset(kind.code for kind in (Unavailable, UnexpectedResponse, NotSent, OutcomeUnknown))

log = logging.getLogger(__name__)


class Checks:
    """Run one check per cloud at a time, shared by all callers; a result is used again while it is fresh."""

    def __init__(
        self, providers: Mapping[str, Provider], clock: Clock, deadline_s: float, stores: Collection[str] = ()
    ) -> None:
        """`stores` are the variables of external checkpoint stores that are set here."""
        self.stores = frozenset(stores)
        self._providers = providers
        self._clock = clock
        self._deadline_s = deadline_s
        #: The last result, and its monotonic second.
        self._known: dict[str, tuple[float, Preflight]] = {}
        self._asking: dict[str, asyncio.Task[Preflight]] = {}

    async def check(self, cloud: str, *, fresh: bool = False, within_s: float = GOOD_S) -> Preflight:
        """Whether this cloud can be bought from now. Its failure is a result too; `fresh` checks in any case.

        A good result may be `within_s` seconds old.
        """
        known = self._known.get(cloud)
        if known is not None and not fresh:
            age_s = self._clock.monotonic() - known[0]
            if age_s < (within_s if known[1].ok else BAD_S):
                return known[1]
        task = self._asking.get(cloud)
        if task is None:
            task = asyncio.create_task(self._ask(cloud), name=f"preflight-{cloud}")
            self._asking[cloud] = task
            task.add_done_callback(lambda _: self._asking.pop(cloud, None))
        return await asyncio.shield(task)

    def store(self, location: str | None, places: Collection[str]) -> str | None:
        """Return why checkpoints cannot be kept at `location` with the credentials that are set here, or None.

        `places` are those that the policy lists for these credentials.
        """
        return missing_variables(location, self.stores) or not_listed(location, places)

    async def close(self) -> None:
        """Cancel the checks that nobody waits for."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, cloud: str) -> Preflight:
        at_s = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._deadline_s):
                found = await self._providers[cloud].preflight()
        except TimeoutError:
            problem = f"it did not answer within {self._deadline_s:g} s whether the account can be used"
            found = Preflight(cloud, ok=False, problem=problem, code=Unavailable.code)
        if not found.ok and found.code == RateLimited.code:
            # A rate limit says nothing against the account, and does not make the last good result worse.
            return Preflight(cloud, ok=True, account=found.account)
        if not found.ok:
            log.warning("%s failed its check: %s", cloud, found.code or "not usable")
        self._known[cloud] = (at_s, found)
        return found


def gave_no_answer(checked: Preflight) -> bool:
    """Whether a failed check says nothing about the account, because its cloud gave no usable answer."""
    return not checked.ok and checked.code in UNCLEAR


def refusal(checked: Preflight) -> str:
    """Return what people read about a cloud that failed its check: why, what is missing, and where that is set."""
    missing = f" ({', '.join(checked.missing)})" if checked.missing else ""
    where = f" See {checked.where}." if checked.where else ""
    return f"{checked.cloud} is not bought from: {checked.problem.rstrip('.')}{missing}.{where}"


def account_code(checked: Preflight) -> str:
    """Return the code of what is wrong with an account; "" where nothing is. Some clouds only show an empty balance."""
    if checked.balance is not None and checked.balance.credit_usd <= 0:
        return InsufficientFunds.code
    return "" if checked.ok else checked.code
