"""The ledger that tools share: its entries, its verification, its sums, and the live instances."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field

from bot.api.schemas.base import CommandOut, Out, optional
from bot.api.schemas.fields import SpentUsd
from bot.services.market.offer_fields import Id


class ExternalIn(BaseModel):
    """A cost of another tool. The same `id`, or without one the same content, is booked once."""

    skill: str = Field(description="The tool that spent it.", examples=["training-runner"])
    provider: str = Field(description="Where the money was spent.", examples=["s3"])
    action: str = Field(description="What the money was spent on.", examples=["store checkpoints"])
    amount_usd: Decimal = Field(description="Dollars; less than 0 for a refund.", examples=["1.25"])
    timestamp: str = Field(description="When, with its time zone.", examples=["2026-03-02T09:00:00Z"])
    notes: str = optional("Anything else.", "")
    id: Id = ""


class ExternalOut(CommandOut):
    """Where the cost is booked; `code` is `booked`, or `known` when it was there already."""

    entry_id: str = Field(description="The id of the entry in the ledger.")


class SharedEntry(BaseModel):
    """One cost in the shape that tools share. Do not import one whose id begins with `gpu-shopper/`."""

    id: Id
    skill: str = Field(description="The tool that spent it.")
    provider: str = Field(description="Where the money was spent.")
    action: str = Field(description="What the money was spent on.")
    amount_usd: float = Field(description="Dollars; less than 0 for a refund.")
    timestamp: str = Field(description="When, with its time zone.")
    notes: str = Field(description="Anything else.")


class CheckedOut(Out):
    """Whether the ledger is unchanged. `head` is the newest hash: keep it to detect later changes."""

    ok: bool = Field(description="Whether all is well.")
    entries: int = Field(description="How many entries the ledger has.")
    hashed: int = Field(description="How many of them are in the hash chain.")
    waiting: int = Field(description="How many of them are not in the hash chain yet.")
    spent_usd: SpentUsd
    head: str = Field(description="The newest hash of the ledger.")
    problems: list[str] = Field(description="What is wrong with the ledger, in words.")


class SummaryOut(Out):
    """Everything that was ever spent; `markdown` is `cost_summary.md`."""

    at: datetime = Field(description="When.")
    total_usd: Decimal = Field(description="Everything that was ever spent.")
    tools: dict[str, Decimal] = Field(description="What each tool spent.")
    providers: dict[str, Decimal] = Field(description="What was spent at each provider.")
    owners: dict[str, Decimal] = Field(description="What each owner spent.")
    budgets: list[str] = Field(description="What each budget still allows.")
    markdown: str = Field(description="The same as a page of Markdown.")


class LiveManifest(BaseModel):
    """`instance_manifest.json`: the live instances, with endpoints."""

    generated_at: datetime = Field(description="When this was made.")
    instances: list[dict[str, Any]] = Field(description="The live instances, each with its session and its costs.")
