"""Fields that several bodies and answers share, each with its description."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import Field

RequestId = Annotated[str, Field(description="The id of the request.")]
SessionId = Annotated[str, Field(description="The id of the session.")]
Actor = Annotated[str, Field(description="Who: the kind and the name, such as slack:T1/U012AB3CD or consumer:atlas.")]
Owner = Annotated[str, Field(description="Whose it is.")]
Kind = Annotated[str, Field(description="What kind it is.")]
State = Annotated[str, Field(description="Its state.")]
Name = Annotated[str, Field(description="Its name.")]
Reason = Annotated[str, Field(description="The reason, for approvers and for the audit log.")]
ReasonText = Annotated[Reason, Field(max_length=4000)]
ShortReasonText = Annotated[Reason, Field(max_length=500)]
At = Annotated[datetime, Field(description="When.")]
CreatedAt = Annotated[datetime, Field(description="When it was made.")]
EndedAt = Annotated[datetime | None, Field(description="When its end was confirmed; null before.")]
ExpiresAt = Annotated[datetime, Field(description="When it expires.")]
Since = Annotated[datetime, Field(description="The start of the time.")]
Until = Annotated[datetime, Field(description="Until when.")]
SpentUsd = Annotated[Decimal, Field(description="What was spent.")]
PriceCap = Annotated[
    Decimal | None, Field(description="The most per hour that the approval covers; null when it covers no offer.")
]
TotalCap = Annotated[
    Decimal | None, Field(description="The most in all that the approval covers; null when it covers no offer.")
]
Held = Annotated[
    str,
    Field(
        description="Why nothing is bought or terminated now, and which commands change that; empty when all is well."
    ),
]
Time = Annotated[Decimal, Field(allow_inf_nan=False, max_digits=30)] | Annotated[str, Field(max_length=40)]
HoursIn = Annotated[Time, Field(description="Hours, as a number or written as 6h, 90m or 2d.", examples=["2h"])]
OfferIdIn = Annotated[
    Annotated[str, Field(max_length=256)] | None,
    Field(description="The offer's id at this service, such as vast:30406190.", examples=["vast:30406190"]),
]
Token = Annotated[str, Field(description="The secret; it is shown this once and stored nowhere.")]
Certificate = Annotated[str, Field(description="The SHA-256 of the certificate of the machine's API, hexadecimal.")]
