"""A field that is added to the wire alone is sent by agents, described and checked by the API, and read by rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from bot.api.schemas.wire import published
from bot.rules.nodes.checkins import NodeStatus, after_checkin
from bot.rules.policy.policy import Policy
from bot.wire.checkin import Checkin
from bot.wire.codec import ValueLimits, from_json, spec, to_json
from tests.support.clock import START


@dataclass(frozen=True, kw_only=True)
class LaterCheckin(Checkin):
    """One check-in of a later release."""

    fans_percent: Annotated[int, ValueLimits(ge=0, le=100)] | None = spec("How fast its fans turn.", None)


def test_an_added_field_reaches_the_agent_the_api_and_the_rules() -> None:
    sent = to_json(LaterCheckin(seq=7, fans_percent=40))
    assert sent == {"seq": 7, "fans_percent": 40}
    body: Any = TypeAdapter(published(LaterCheckin, _Names(), ConfigDict(extra="forbid")))
    about = body.json_schema()["properties"]["fans_percent"]
    assert about["description"] == "How fast its fans turn."
    assert about["anyOf"][0] == {"maximum": 100, "minimum": 0, "type": "integer"}
    taken = body.validate_python(sent)
    assert isinstance(taken, LaterCheckin)
    assert taken.fans_percent == 40
    assert after_checkin(NodeStatus(), taken, Policy(), START).seq == 7
    with pytest.raises(ValidationError, match="less than or equal to 100"):
        body.validate_python({"seq": 7, "fans_percent": 101})


def test_a_service_of_before_and_an_agent_of_before_do_without_it() -> None:
    assert to_json(LaterCheckin(seq=7)) == to_json(Checkin(seq=7))
    assert from_json(LaterCheckin, to_json(Checkin(seq=7))).fans_percent is None


class _Names(dict[type[Any], str]):
    def __missing__(self, kind: type[Any]) -> str:
        return f"{kind.__name__}In"
