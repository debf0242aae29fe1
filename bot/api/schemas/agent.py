"""Publish the check-in of the agent on a rented machine, and its answer, as bodies of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pydantic import ConfigDict

from bot.api.schemas.wire import published
from bot.wire import checkin as wire
from bot.wire import node_api

if TYPE_CHECKING:  # A class that is made as the program starts is no type to a checker.
    CheckinIn: TypeAlias = wire.Checkin
    CheckinOut: TypeAlias = wire.CheckinAnswer
else:
    CheckinIn = published(
        wire.Checkin,
        {
            wire.Checkin: "CheckinIn",
            wire.Checkpoint: "CheckpointIn",
            wire.QueueCounts: "QueueIn",
            wire.ReportedResult: "CommandResultIn",
            node_api.NodeApiClaim: "NodeApiIn",
            wire.GpuReport: "GpuSeenIn",
            wire.StartupStep: "StartupStepIn",
            wire.MachineReport: "MachineIn",
            wire.SignedMessage: "SignedEndIn",
        },
        ConfigDict(extra="forbid"),
    )
    CheckinOut = published(
        wire.CheckinAnswer,
        {
            wire.CheckinAnswer: "CheckinOut",
            wire.SignedDeadline: "SignedDeadline",
            node_api.NodeIdentity: "NodeIdentityOut",
        },
        ConfigDict(),
    )
