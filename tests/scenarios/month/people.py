"""What people do in the month: ask, approve, extend, end early, or forget that they have a machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from bot.rules.jobs.facets.limits import SpotPolicy
from bot.services.runtime.commands import Reply
from ledger.kernel.actor import Actor
from ledger.kernel.request_kind import RequestKind
from ledger.kernel.states import RequestState, SessionState
from ledger.queries.people.request_cards import shown_in
from tests.scenarios.month.board import Shown
from tests.scenarios.month.faults import Injector
from tests.scenarios.month.shares import SHARE
from tests.scenarios.month.town import OWNERS, Month, slack
from tests.support.world import BOB, CAROL

HOURS = (1, 1, 1, 2, 2, 2, 3, 4, 6, 8, 12)
#: The share of what is asked of Vast.ai that is to be a spot machine.
SPOT = 0.2
#: The share of questions about a higher cost that nobody answers.
UNANSWERED = 0.5
#: The share of questions about more hours in all that are left until they expire.
LEFT = 0.3
#: What owners do with a machine that is ready, and how often of 100.
HABITS = {"forget": 45, "end": 30, "extend": 15, "done": 5, "idle": 5}


@dataclass
class Story:
    """What became of one request, as its people lived it."""

    cloud: str
    request_id: str
    asked_at: datetime
    hours: int
    habit: str
    clicked_at: list[datetime] = field(default_factory=list)
    ready_at: datetime | None = None
    replies: list[str] = field(default_factory=list)


@dataclass
class People:
    """Everybody who asks and everybody who decides. They react to what they read."""

    month: Month
    injector: Injector
    hours_max: int
    stories: dict[str, Story] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    unexpected: list[str] = field(default_factory=list)
    #: Questions about a higher cost: whether somebody answers.
    answered: dict[str, bool] = field(default_factory=dict)
    #: Requests that more hours have to be allowed for first: whether somebody does.
    longer: dict[str, bool] = field(default_factory=dict)

    def day(self, start: datetime, end: datetime, clouds: tuple[str, ...], sessions_a_day: int) -> None:
        """Plan the requests of a day, or of what there is of it."""
        random, length_s = self.month.random, (end - start).total_seconds()
        names, shares = list(clouds), [SHARE[name] for name in clouds]
        for _ in range(round(sessions_a_day * length_s / 86400)):
            at = start + timedelta(seconds=random.uniform(0, length_s))
            cloud = random.choices(names, shares)[0]
            self.month.at(at, partial(self.ask, cloud))

    async def ask(self, cloud: str) -> None:
        """Somebody asks for a machine at one cloud."""
        random = self.month.random
        hours = 1 if cloud == "kaggle" else min(random.choice(HOURS), self.hours_max)
        habit = random.choices(list(HABITS), list(HABITS.values()))[0] if cloud != "kaggle" else "forget"
        self.injector.before_create(cloud)
        hands = self.month.hands
        hands.asked = len(self.stories)
        spot = SpotPolicy.YES if cloud == "vast" and random.random() < SPOT else SpotPolicy.NO
        owner = slack(random.choice(OWNERS))
        reply = await hands.ask(owner, candidates=(cloud,), hours=Decimal(hours), spot=spot)
        if not reply.ok:
            self.unexpected.append(f"ask {cloud}: {reply.code}")
            return
        request_id = str(reply.data["request_id"])
        self.stories[request_id] = Story(cloud, request_id, self.month.now, hours, habit)

    def read(self, shown: Shown) -> None:
        """Somebody reads a message, and acts on it a little later."""
        random = self.month.random
        if shown.kind == "request.message" and shown.subject not in self.waiting:
            self.waiting.add(shown.subject)
            self.month.after(random.uniform(15, 90), lambda: self.consider(shown.subject))
        elif shown.kind == "session.ready":
            self.month.after(1, lambda: self.use(shown.subject))

    async def consider(self, card_id: str) -> None:
        """Bob looks at the request that a message shows, and approves its first option when it can be decided.

        What is asked of him first, more hours in all than one decision allows, is left, or is Carol's to allow.
        """
        self.waiting.discard(card_id)
        async with self.month.hands.ctx.db.read() as tx:
            request_id = await shown_in(tx, card_id)
        view = await self.month.hands.view(request_id)
        if view.request.state is not RequestState.PENDING:
            return
        if view.request.kind == RequestKind.OVERSPEND:
            answers = self.answered.setdefault(request_id, self.month.random.random() >= UNANSWERED)
            if not answers:
                return
        if view.request.kind == RequestKind.OVERRIDE_12H:
            return  # It is decided together with what it is for.
        if view.override is not None and view.override.state is RequestState.PENDING:
            allowed = self.longer.setdefault(request_id, self.month.random.random() >= LEFT)
            if not allowed:
                return
            self._note(request_id, await self.month.hands.decide(view.override.id, CAROL))
        reply = await self.month.hands.decide(request_id, BOB)
        self._note(request_id, reply)
        if reply.code == "approved" and request_id in self.stories:
            self.stories[request_id].clicked_at.append(self.month.now)

    def _note(self, request_id: str, reply: Reply) -> None:
        story = self.stories.get(request_id)
        if story is not None:
            story.replies.append(reply.code)
        if not reply.ok:
            self.unexpected.append(f"{request_id}: {reply.code}: {reply.sentence}")

    async def use(self, session_id: str) -> None:
        """The owner's machine is ready: what happens with it depends on the owner."""
        view = await self.month.hands.session(session_id)
        story = self.stories.get(view.session.request_id)
        if story is None or view.session.deadline is None:
            return
        if view.instance is not None and view.instance.ref is not None:
            spot = bool(view.instance.offer.get("spot"))
            left_s = (view.session.deadline - self.month.now).total_seconds()
            self.injector.in_use(story.cloud, view.instance.ref, spot=spot, left_s=left_s)
        first = story.ready_at is None
        story.ready_at = story.ready_at or view.session.ready_at
        if not first:
            return
        left_s = (view.session.deadline - self.month.now).total_seconds()
        share = self.month.random.uniform(0.1, 0.9)
        if story.habit == "end":
            self.month.after(left_s * share, lambda: self.end(story))
        elif story.habit == "extend":
            self.month.after(max(left_s - 1500, 1), lambda: self.extend(story))
        elif story.habit in ("done", "idle"):
            self.month.after(left_s * share, lambda: self.rest(session_id, story.habit))

    async def end(self, story: Story) -> None:
        """The owner ends it."""
        view = await self.month.hands.view(story.request_id)
        if view.session is None or view.session.state not in (SessionState.RUNNING, SessionState.STOPPED):
            return
        reply = await self.month.hands.end(story.request_id, Actor.from_ref(view.request.requester))
        self._note(story.request_id, reply)

    async def extend(self, story: Story) -> None:
        """The owner asks for an hour more."""
        view = await self.month.hands.view(story.request_id)
        if view.session is None or view.session.state is not SessionState.RUNNING or story.hours >= 12:
            return
        who = Actor.from_ref(view.request.requester)
        reply = await self.month.hands.more(story.request_id, "1", who, key=f"more-{story.request_id}")
        self._note(story.request_id, reply)

    async def rest(self, session_id: str, habit: str) -> None:
        """The job is done, or the machine does nothing any more."""
        view = await self.month.hands.session(session_id)
        if view.instance is None:
            return
        key = f"{view.instance.cloud}/{view.instance.ref}"
        if key in self.month.engine.nodes.running:
            changes = {"job": "done"} if habit == "done" else {"utilisation": [0.0], "idle_since": self.month.now}
            self.month.engine.nodes.configure(key, **changes)
