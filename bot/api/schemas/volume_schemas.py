"""Describe requests for network volumes, and the volumes that exist."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from bot.api.schemas import fields
from bot.api.schemas.base import In, Out, optional
from ledger.kernel.states import SessionState

Word = Annotated[str, Field(max_length=60)]


class VolumeIn(In):
    """A network volume to ask for."""

    name: Word = Field(description="2 to 24 lowercase letters, digits and hyphens.", examples=["data"])
    size: Word = Field(description="Its size.", examples=["200GB"])
    cloud: Word = optional("The cloud; empty for the cheapest of those that have volumes.", "", examples=["runpod"])
    regions: list[Word] = optional("Regions or countries.", [], max_length=20, examples=[["EU-RO-1"]])
    time: Word = Field(default="14d", description="How long it stays, such as 14d or 36h.", examples=["14d"])
    reason: fields.ReasonText = ""


class VolumeOut(Out):
    """A network volume. It is also a session, which can be extended, transferred and ended."""

    name: fields.Name
    session_id: fields.SessionId
    request_id: fields.RequestId
    state: SessionState = Field(description="Its state.")
    owner: fields.Owner
    owner_name: str = optional("The owner's name, where the policy knows it.", "")
    cloud: str = Field(description="The cloud's name.", examples=["runpod"])
    region: str = Field(description="Where it is: only machines there can mount it.", examples=["EU-RO-1"])
    size_gb: int = Field(description="The approved size in GB.", examples=[200])
    path: str = Field(description="Where machines find it.", examples=["/volumes/data"])
    price_usd_h: Decimal = Field(description="Dollars per hour, whether or not a machine uses it.")
    cost_usd: Decimal = Field(description="What it has cost so far.")
    deadline: datetime | None = Field(description="When it is deleted with all data on it.")
    trouble: str = optional("What is wrong with it: its cloud doesn't list it, or nobody pays for it.", "")
