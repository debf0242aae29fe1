"""The settings of one Kaggle account."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from providers.adapter import CloudConfig
from providers.http import Credential


def _user(name: str) -> str:
    if not all("!" <= character <= "~" and character != "/" for character in name):
        raise ValueError("a Kaggle user name is printable ASCII without spaces or slashes; copy it from the profile")
    return name


class KaggleConfig(CloudConfig):
    """How to reach one Kaggle account: user name and key, or an access token, which wins when both are set.

    `session_max_h` is the longest session pushed: nine hours were seen, twelve are said to exist. `sessions_max` is
    how many GPU sessions may run at once, an interactive one on the web page included.
    """

    username: Annotated[str, AfterValidator(_user)] = ""
    api_token: Credential = SecretStr("")
    base_url: str = "https://api.kaggle.com"
    session_max_h: float = Field(default=9.0, gt=0, le=12)
    sessions_max: int = Field(default=2, ge=1, le=16)

    @property
    def missing(self) -> tuple[str, ...]:
        """The variables to set, in the classic spelling, when neither kind of credential is complete."""
        if self.api_token.get_secret_value():
            return ()
        pairs = (("KAGGLE_USERNAME", self.username), ("KAGGLE_KEY", self.api_key.get_secret_value()))
        return tuple(name for name, value in pairs if not value)

    @property
    def credential(self) -> str:
        """The token, else user name and key."""
        return self.api_token.get_secret_value() or f"{self.username}:{self.api_key.get_secret_value()}"

    @property
    def authorization(self) -> str:
        """The header's value: `Bearer` for a token, else `Basic`."""
        token = self.api_token.get_secret_value()
        if token:
            return f"Bearer {token}"
        pair = f"{self.username}:{self.api_key.get_secret_value()}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
