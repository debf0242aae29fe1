"""What people do in one seed: they ask, click any button, twice or again, end, extend, stop, start and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from bot.rules.instances.power import PowerAction
from bot.rules.jobs import network_volume
from bot.services.approvals import decisions
from bot.services.grants.amendments import amended_terms
from bot.services.instances import power
from bot.services.requests import submit
from bot.services.runtime.commands import Decide, Provision, Reply, Switch
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState
from ledger.models import Request, Token
from ledger.queries.views import RequestView
from tests.scenarios.simulation.place import APPROVERS, Place
from tests.support.world import CHANNEL, World, facts

OWNERS = ("UALICE", "UDAVE", "UERIN")
OPEN = (RequestState.PENDING, RequestState.WAITING)
#: Of 100 looks at an undecided request, how often somebody rejects or cancels it instead of approving.
REJECTED, CANCELLED = 6, 4
#: How often the requester and a stranger press a button that is not theirs, before somebody else does.
FORBIDDEN = 0.15
STRANGER = "UMALLORY"
#: While fewer instances were rented, one more request is made at each look, from the first time until the last.
SESSIONS_MIN, ASKED_MAX, FIRST_AGAIN_S, LAST_AGAIN_S = 3, 16, 500.0, 2500.0
#: Until then a request that is still to be decided counts as if it were rented.
HOPEFUL_S = 1200.0
#: With so many rented, people end what they have: a seed that replaces one machine after another plays no longer.
SESSIONS_MAX = 4
HOURS = ("0.25", "0.25", "0.5", "0.5", "1")
#: Where machines have agents, of 100 requests so many are for a job, which works longer.
JOBS, JOB_HOURS, RUN = 70.0, ("1", "1.5"), "python train.py"
#: How long somebody keeps a volume, of which size, and when they ask for it and write to it.
VOLUME_HOURS, VOLUME_GB, VOLUME_ASKED_S, WRITTEN_S = ("1", "2"), (20, 200), (0.0, 300.0), 600.0
#: How full it gets; more than was asked for, too, where a cloud lets it grow.
FULL = ("0.1", "0.9", "2")
DEAR, CHEAP = Decimal(20), Decimal("0.05")


def person(name: str) -> Actor:
    """Somebody in the workspace."""
    return Actor(ActorKind.SLACK, name, "T1")


@dataclass
class People:
    """Everybody. `requests` are the ids that people know of."""

    place: Place
    requests: list[str] = field(default_factory=list)
    clicks: list[tuple[str, str]] = field(default_factory=list)
    asked: int = 0
    #: Who has answered which button, so that the other approver is the next one to press it.
    pressed: set[tuple[str, str]] = field(default_factory=set)
    #: The requests that were withdrawn or ended because enough was rented.
    given_up: set[str] = field(default_factory=set)
    replies: dict[str, int] = field(default_factory=dict)

    def plan(self) -> None:
        """Put the day of these people on the agenda."""
        random = self.place.random
        for _ in range(random.choice((2, 3, 3))):
            self.place.after(random.uniform(0, 500), self.ask)
        for _ in range(random.randint(2, 5)):
            self.place.after(random.uniform(300, 2400), self.do_something)
        if self.place.troubles.volume_at:
            self.place.after(self.place.troubles.random.uniform(*VOLUME_ASKED_S), self.ask_volume)
        for at_s in range(60, 2700, 150):
            self.place.after(at_s + random.uniform(0, 100), self.look)

    async def ask(self) -> None:
        """Somebody asks for a machine, and asks again with the same key while there is no answer."""
        random = self.place.random
        self.asked += 1
        key, owner = f"ask-{self.asked}", person(random.choice(OWNERS))
        clouds = tuple(random.sample(self.place.profile.clouds, random.randint(1, len(self.place.profile.clouds))))
        job: dict[str, Any] = {"candidates": clouds, "hours": Decimal(random.choice(HOURS))}
        if random.random() < 0.2:
            job |= {"wait": True, "max_price_usd_h": random.choice((DEAR, CHEAP)), "wait_until": "60m"}
        troubles = self.place.troubles
        if troubles.has_agents and troubles.random.uniform(0, 100) < JOBS:
            job |= {"run": RUN, "hours": Decimal(troubles.random.choice(JOB_HOURS))}
        for _ in range(3):
            reply = await self.place.by_a_process(lambda hands: hands.ask(owner, key=key, **job))
            if reply is not None:
                self._note("ask", key, reply)
                if reply.ok and (request_id := str(reply.data["request_id"])) not in self.requests:
                    self.requests.append(request_id)
                return

    async def ask_volume(self) -> None:
        """Somebody asks for a volume, and writes to it once it is there."""
        troubles, place = self.place.troubles, self.place
        owner, size_gb = person(OWNERS[0]), troubles.random.choice(VOLUME_GB)
        hours = Decimal(troubles.random.choice(VOLUME_HOURS))
        job = network_volume.volume_job("data", size_gb, hours, (troubles.volume_at,))
        for _ in range(3):
            reply = await place.by_a_process(partial(_volume, Provision("volume", owner, CHANNEL, job)))
            self._note("ask for a volume", "volume", reply)
            if reply is not None:
                break
        written_gb = int(size_gb * Decimal(troubles.random.choice(FULL)))

        async def write() -> None:
            place.write(troubles.volume_at, written_gb)

        place.after(WRITTEN_S, write)

    async def look(self) -> None:
        """Somebody looks at what waits for a decision: requests, and those for more time or an override.

        Where little came of the requests so far, somebody asks once more; where enough did, everybody ends theirs.
        """
        rented = self.place.rented
        is_time = FIRST_AGAIN_S < self.place.elapsed_s < LAST_AGAIN_S
        waiting = await self.place.requests(*OPEN)
        machines = [one.id for one, _ in waiting if one.kind is not RequestKind.VOLUME]
        self.requests += [request_id for request_id in machines if request_id not in self.requests]
        if rented >= SESSIONS_MAX:
            await self._give_up()
            return
        # Late in the day nobody counts on what is still to be decided.
        is_early = self.place.elapsed_s < HOPEFUL_S
        hopeful = sum(1 for one, _ in waiting if is_early and one.state is RequestState.PENDING)
        if is_time and rented + hopeful < SESSIONS_MIN and self.asked < ASKED_MAX:
            await self.ask()
        for request, tokens in waiting:
            if tokens:
                await self._decide(request, tokens)

    async def _give_up(self) -> None:
        """Everybody withdraws what they asked for, and ends what they have."""
        for request_id in self.requests:
            view = await self._view(request_id) if request_id not in self.given_up else None
            if view is None:
                continue
            reply = await self.place.by_a_process(partial(_leave, view.request))
            if reply is not None:
                self.given_up.add(request_id)
            self._note("give up", request_id, reply)

    async def _decide(self, request: Request, shown: Sequence[Token]) -> None:
        random, chance = self.place.random, self.place.random.randrange(100)
        request_id = request.id
        if chance < CANCELLED:
            owner = Actor.from_ref(request.requester)
            reply = await self.place.by_a_process(lambda hands: hands.cancel(request_id, owner))
            self._note("cancel", request_id, reply)
            return
        wanted = "reject" if chance < CANCELLED + REJECTED else "approve"
        tokens = [one for one in shown if one.action == wanted]
        tokens = [one for one in tokens if any((one.token, name) not in self.pressed for name in APPROVERS)]
        if not tokens:
            return
        token: Token = random.choice(tokens)
        self.clicks.append((token.token, request_id))
        await self._click(token.token, request_id, times=random.choice((1, 1, 1, 2)))

    async def _click(self, token: str, request_id: str, times: int = 1) -> None:
        """Press a button, perhaps twice at once, in whichever processes get it; it may be somebody who must not."""
        names = self.place.random.sample(APPROVERS, len(APPROVERS))
        who = [person(name) for name in sorted(names, key=lambda one: (token, one) in self.pressed)]
        if self.place.random.random() < FORBIDDEN:
            who = [person(self.place.random.choice((*OWNERS, STRANGER))) for _ in who]

        async def click(actor: Actor, hands: World) -> Reply:
            view = await _view(request_id, hands)
            seen = amended_terms(view.request, view.approvals).digest if view is not None else ""
            return await decisions.decide(hands.ctx, Decide(token, facts(actor), seen=seen))

        replies = await asyncio.gather(*(self.place.by_a_process(partial(click, actor)) for actor in who[:times]))
        for actor, reply in zip(who, replies, strict=False):
            if reply is not None:
                self.pressed.add((token, actor.id))
            self._note("click", request_id, reply)

    async def do_something(self) -> None:
        """Somebody does something with a session, or an old click arrives once more."""
        random = self.place.random
        if not self.requests:
            return
        request_id = random.choice(self.requests)
        view = await self._view(request_id)
        if view is None:
            return
        owner = facts(Actor.from_ref(view.request.requester))
        what = random.choice(("end", "more", "more", "stop", "start", "replay", "cancel"))
        if what == "replay" and self.clicks:
            await self._click(*random.choice(self.clicks))
        elif what == "end":
            self._note(what, request_id, await self.place.by_a_process(lambda w: w.end(request_id, owner.actor)))
        elif what == "more":
            self.asked += 1
            key = f"more-{self.asked}"
            for _ in range(2):
                self._note(
                    what, request_id, await self.place.by_a_process(partial(_more, request_id, owner.actor, key))
                )
        elif what == "cancel":
            self._note(what, request_id, await self.place.by_a_process(lambda w: w.cancel(request_id, owner.actor)))
        elif what in ("stop", "start"):
            order = Switch(request_id, owner, PowerAction(what))
            self._note(what, request_id, await self.place.by_a_process(lambda w: power.switch(w.ctx, order)))

    async def _view(self, request_id: str) -> RequestView | None:
        return await self.place.by_a_process(partial(_view, request_id))

    def _note(self, what: str, about: str, reply: Reply | None) -> None:
        code = str(reply.code) if reply is not None else "no answer"
        self.replies[f"{what}: {code}"] = self.replies.get(f"{what}: {code}", 0) + 1
        self.place.note(f"{what} {about}: {code}")


async def _view(request_id: str, hands: World) -> RequestView | None:
    """What the ledger knows of a request; nothing where a restored copy is older than it."""
    with suppress(LookupError):
        return await hands.view(request_id)
    return None


async def _volume(command: Provision, hands: World) -> Reply:
    return await submit.provision(hands.ctx, command)


async def _more(request_id: str, owner: Actor, key: str, hands: World) -> Reply:
    return await hands.more(request_id, "0.5", owner, key=key)


async def _leave(request: Request, hands: World) -> Reply:
    owner = Actor.from_ref(request.requester)
    return await (hands.cancel if request.state in OPEN else hands.end)(request.id, owner)
