"""Look people up in Slack for a command on the server; imported only when somebody approves as a delegate."""

from __future__ import annotations

from bot.main import slack_settings
from bot.rules.approvals.approvers import DeciderFacts
from bot.rules.policy.policy import Policy
from bot.settings import Settings
from bot.slack.identity import Directory
from bot.slack.web import Web
from ledger.kernel.actor import Actor
from ledger.kernel.clock import Clock


async def looked_up(settings: Settings, policy: Policy, clock: Clock, actor: Actor) -> DeciderFacts:
    """Look one person up over a connection of its own; `known` is false when Slack did not answer."""
    web = Web(slack_settings(settings))
    try:
        return await Directory(web, clock, policy, settings.slack_team_id).looked_up(actor)
    finally:
        await web.close()
