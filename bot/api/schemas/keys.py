"""The public SSH keys that machines get, and the API keys of programs."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from bot.api.schemas.base import CommandOut, In, Out, optional
from bot.api.schemas.fields import Actor, CreatedAt, ExpiresAt, Owner, State, Token
from bot.rules.access.scopes import KEY_DAYS
from bot.services.market.offer_fields import Id


class SshKeyIn(In):
    """A public SSH key, as in a .pub file."""

    public_key: str = Field(max_length=4096, description="One line as in a .pub file; private keys are refused.")


class SshKeyRow(Out):
    """A registered key."""

    fingerprint: str = Field(description="The fingerprint of the key: SHA256:…")
    public_key: str = Field(description="The key as in a .pub file, without its comment.")
    created_at: CreatedAt


class SshKeyOut(CommandOut):
    """The registered keys; `fingerprint` is that of the one that was added."""

    fingerprint: str | None = optional("The fingerprint of the key: SHA256:…")
    keys: list[SshKeyRow] = optional("All of your keys, the oldest first.", [])


class ApiKeyIn(In):
    """A key for a program, and the person who answers for it; people answer for themselves."""

    name: str = Field(
        max_length=60,
        description="A program such as atlas, an AI agent as agent:coder, or a person as operator:ada.",
        examples=["atlas"],
    )
    owner: str = Field(
        default="",
        max_length=90,
        description="The person who owns a program: a Slack id or operator:ada.",
        examples=["U012AB3CD"],
    )
    scopes: list[str] = Field(default=[], max_length=10, description="What the key may do; empty means the usual ones.")
    days: int = Field(default=KEY_DAYS, ge=1, le=366, description="For how many days it works.")


class ApiKeyOut(Out):
    """A key without its secret."""

    id: Id
    actor: Actor
    owner: Owner
    actor_name: str = optional("The name of the person that holds it, where it is known.", "")
    owner_name: str = optional("The owner's name, where it is known.", "")
    scopes: list[str] = Field(description="What the key may do; empty means the usual ones.")
    state: State
    created_at: CreatedAt
    created_by: str = Field(description="Who made it.")
    expires_at: ExpiresAt
    last_used_at: datetime | None = Field(description="When it was last used, to the minute; null when it never was.")


class ApiKeyMade(CommandOut):
    """A new key. `token` is shown this once."""

    key_id: str = Field(description="The id of the key, which is no secret.")
    actor: Actor
    token: Token
    expires_at: ExpiresAt
