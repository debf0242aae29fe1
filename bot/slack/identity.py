"""Look people up in Slack when they decide, and cache them for at most a minute."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from bot.rules.approvals.approvers import is_slack_group
from bot.rules.approvals.decision import DeciderFacts
from bot.rules.policy.policy import Policy
from bot.slack.web import Web, WebError
from ledger.kernel.actor import Actor, ActorKind
from ledger.kernel.clock import Clock

FRESH_FOR: Final = timedelta(seconds=60)
REMEMBERED: Final = 2_000
#: Slack's answers about somebody whom this workspace does not have.
NOBODY: Final = frozenset({"user_not_found", "user_not_visible", "users_not_found"})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Answer:
    at: datetime
    value: Any


#: Store the name of the person with a Slack id.
KeepName = Callable[[str, str], Awaitable[None]]


def shown_name(person: Mapping[str, Any]) -> str:
    """Return the name that Slack shows for a person of `users.info`: the display name, else the full name."""
    profile = person.get("profile")
    own = profile if isinstance(profile, Mapping) else {}
    names = (own.get("display_name"), own.get("real_name"), person.get("real_name"), person.get("name"))
    return next((name for name in names if isinstance(name, str) and name.strip()), "")


class Directory:
    """Look up people and user groups of the home team."""

    def __init__(
        self, web: Web, clock: Clock, policy: Policy, team_id: str | None, keep_name: KeepName | None = None
    ) -> None:
        """Without `keep_name`, names are not stored."""
        self._web = web
        self._clock = clock
        self._policy = policy
        self._team_id = team_id
        self._keep_name = keep_name
        self._known: dict[str, _Answer] = {}

    def take_up(self, policy: Policy) -> None:
        """Use another policy from now on."""
        self._policy = policy
        self._known.clear()

    @property
    def known_team(self) -> str | None:
        """Return the home team if it is known already, without asking Slack."""
        return self._team_id

    async def home_team(self) -> str:
        """Return the team that installed the app; Slack is asked once. Raises `WebError`."""
        if self._team_id is None:
            found = (await self._web.call("auth.test")).get("team_id")
            if not found:
                raise WebError("auth.test", "unexpected_answer")
            self._team_id = str(found)
        return self._team_id

    async def facts(self, user: str, team: str) -> DeciderFacts:
        """Return the facts that a decision is checked against; a failed look-up gives `known=False`, which refuses.

        Somebody whom Slack does not know is no member of this workspace.
        """
        actor = Actor(ActorKind.SLACK, user, team)
        try:
            home = await self.home_team()
            person = await self._person(user)
            groups = await self._groups_of(user)
        except WebError as error:
            log.warning("nobody could say who %s is: %s", user, error)
            return DeciderFacts(actor, known=error.code in NOBODY, team_ok=error.code not in NOBODY)
        own_team = str(person.get("team_id") or "")
        return DeciderFacts(
            Actor(ActorKind.SLACK, user, own_team or team),
            team_ok=bool(home) and own_team == home and team in ("", home),
            is_bot=bool(person.get("is_bot")),
            is_deleted=bool(person.get("deleted")),
            is_guest=any(person.get(flag) for flag in ("is_restricted", "is_ultra_restricted", "is_stranger")),
            groups=groups,
        )

    async def meet(self, users: Iterable[str]) -> None:
        """Look up these people, so that text outside of Slack can name them before they do anything here."""
        for user in users:
            try:
                await self._person(user)
            except WebError as error:
                log.warning("nobody could say who %s is: %s", user, error)

    async def looked_up(self, actor: Actor) -> DeciderFacts:
        """Return the same facts for somebody whom another interface knows by their reference."""
        return await self.facts(actor.id, actor.team)

    async def _person(self, user: str) -> Mapping[str, Any]:
        found = self._recent(user)
        if found is None:
            answer = await self._web.call("users.info", user=user)
            found = self._remember(user, answer.get("user") or {})
            if self._keep_name is not None and isinstance(found, Mapping) and found.get("id") == user:
                await self._keep_name(user, shown_name(found))
        if not isinstance(found, Mapping) or found.get("id") != user:
            raise WebError("users.info", "unexpected_answer")
        return found

    async def _groups_of(self, user: str) -> tuple[str, ...]:
        """List the approver groups of somebody. A person who is an approver already needs no look-up."""
        policy, people = self._policy, self._policy.approval_groups.values()
        wanted = [name for names in people for name in names if is_slack_group(name)]
        if user in policy.may_approve_not_pinged:
            return ()
        if user not in policy.approvers:
            wanted = [*policy.approver_groups, *wanted]
        return tuple([group for group in dict.fromkeys(wanted) if user in await self._members(group)])

    async def _members(self, group: str) -> frozenset[str]:
        found = self._recent(group)
        if found is None:
            try:
                answer = await self._web.call("usergroups.users.list", usergroup=group)
            except WebError as error:
                if error.code not in ("plan_upgrade_required", "no_such_subteam"):
                    raise
                # Workspaces on the free plan have no user groups; the people named in the policy can still approve.
                log.warning("the approver group %s cannot be used here: %s", group, error.code)
                answer = {}
            found = self._remember(group, frozenset(answer.get("users") or ()))
        return frozenset(found)

    def _recent(self, name: str) -> Any:
        answer = self._known.get(name)
        return answer.value if answer is not None and self._clock.now() - answer.at < FRESH_FOR else None

    def _remember(self, name: str, value: Any) -> Any:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[name] = _Answer(self._clock.now(), value)
        return value
