"""Settings of the Slack interface; the program fills them from its own settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

DEFAULT_URL = "https://slack.com/api/"


@dataclass(frozen=True, slots=True)
class SlackSettings:
    """Tokens, addresses and channels. Secrets are kept out of the repr.

    `app_token` switches Socket Mode on; without it `signing_secret` is needed. `team_id` is the home team, read from
    Slack when None. `approvals_channel` shows the requests; None shows each where it was made.
    """

    bot_token: str = field(repr=False)
    signing_secret: str = field(default="", repr=False)
    app_token: str | None = field(default=None, repr=False)
    base_url: str = DEFAULT_URL
    command: str = "/gpu"
    approvals_channel: str | None = None
    operators_channel: str | None = None
    team_id: str | None = None
    proxy: str | None = None
    timeout_s: int = 10
    workers: int = 4
    queue_max: int = 10_000

    def __post_init__(self) -> None:
        """Raise ValueError with one sentence that names the setting, what is wrong, and what a right one looks like."""
        if not self.bot_token:
            raise ValueError("the Slack bot token is empty; it starts with xoxb- and is on the app's OAuth page")
        if not self.app_token and not self.signing_secret:
            raise ValueError("Slack needs a signing secret (HTTP mode) or an app-level token (Socket Mode)")
        if not re.fullmatch(r"/[a-z0-9_-]{1,31}", self.command):
            raise ValueError(f"{self.command!r} is not a slash command; write one like /gpu")
        if not re.fullmatch(r"https?://\S+/", self.base_url):
            raise ValueError(f"{self.base_url!r} is not the address of Slack's Web API; it ends in /, as {DEFAULT_URL}")
        if self.workers < 1 or self.queue_max < 1:
            raise ValueError("workers and queue_max must be at least 1")
