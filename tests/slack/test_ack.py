"""The acknowledgement: computed from the payload alone, and always something that Slack takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.blockkit import validate_message
from bot.rules.policy.policy import Policy
from bot.slack.ack import OTHER_TEAM, PRIVATE_KEY, AckPlan, plan
from bot.slack.inbound import WITHHELD, InboundKind, InboundMessage

POLICY = Policy()
CLOUDS = ("runpod", "vast")


def command(text: str, **more: Any) -> AckPlan:
    return plan(InboundMessage(InboundKind.COMMAND, "U1", "T1", "C1", text=text, **more), POLICY, CLOUDS, "/gpu", "T1")


@pytest.mark.parametrize(
    "text",
    [
        "list",
        "status abcd12",
        "terminate abcd12",
        "cancel abcd12",
        "key list",
        "provision",
        "extend abcd12 2h",
        "done abcd12",
    ],
)
def test_good_commands_are_worked_on_silently(text: str) -> None:
    planned = command(text)
    assert planned.answer == {}
    assert planned.work is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("provision 4x4090 6h", "Asking 2 clouds…"),
        ("provision 4x4090 6h clouds=vast", "Asking 1 cloud…"),
        ("inventory", "Asking 2 clouds…"),
        ("inventory 4090", "Asking 2 clouds…"),
    ],
)
def test_questions_to_clouds_say_so(text: str, said: str) -> None:
    planned = command(text)
    assert planned.answer["text"] == said
    assert planned.answer["response_type"] == "ephemeral"
    assert planned.work is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("provision 4x4090 six", "six"),
        ("provision 4x4090 0h", "above zero"),
        ("provision 4x4090 6h max=-5", "negative"),
        ("provisoin 4x4090 6h", "Did you mean provision"),
        ("status", "id"),
        ("extend abcd12", "how much more"),
        ("done abcd12 perhaps", "success or failed"),
        ("key remove-all", "add, list and remove"),
    ],
)
def test_a_bad_word_is_pointed_at_and_nothing_is_done(text: str, said: str) -> None:
    planned = command(text)
    assert planned.work is None
    assert said in planned.answer["text"]
    assert "For example `/gpu " in planned.answer["text"]
    assert "^" in planned.answer["blocks"][0]["text"]["text"]


@pytest.mark.parametrize("text", ["", "help", "help provision", "?"])
def test_help_is_the_answer(text: str) -> None:
    planned = command(text)
    assert planned.work is None
    assert "provision" in planned.answer["text"]


def test_a_private_key_is_refused_in_the_acknowledgement() -> None:
    planned = command(WITHHELD)
    assert planned == AckPlan(planned.answer, None)
    assert planned.answer["text"] == PRIVATE_KEY
    assert "make a new pair" in PRIVATE_KEY


def test_another_workspace_is_refused() -> None:
    foreign = InboundMessage(InboundKind.COMMAND, "U9", "T9", "C1", text="list")
    assert plan(foreign, POLICY, CLOUDS, "/gpu", "T1").answer["text"] == OTHER_TEAM
    assert (
        plan(InboundMessage(InboundKind.ACTION, "U9", "T9", action="approve:1"), POLICY, CLOUDS, "/gpu", "T1")
        == AckPlan()
    )
    assert plan(foreign, POLICY, CLOUDS, "/gpu", None).work == foreign


def test_only_known_buttons_are_worked_on() -> None:
    for action in ("approve:1", "approve:time", "reject", "terminate:abc", "keep:abc", "extend:abc", "done:abc"):
        heard = InboundMessage(InboundKind.ACTION, "U1", "T1", action=action, value="t")
        assert plan(heard, POLICY, CLOUDS, "/gpu", "T1") == AckPlan(work=heard)
    for action in ("", "link", "approved", "other:1"):
        assert (
            plan(InboundMessage(InboundKind.ACTION, "U1", "T1", action=action), POLICY, CLOUDS, "/gpu", "T1")
            == AckPlan()
        )
    assert (
        plan(InboundMessage(InboundKind.ACTION, "", "T1", action="reject"), POLICY, CLOUDS, "/gpu", "T1") == AckPlan()
    )


def test_forms_get_their_errors_in_the_acknowledgement() -> None:
    def sent(view: str, **values: Any) -> AckPlan:
        return plan(
            InboundMessage(InboundKind.VIEW, "U1", "T1", view=view, values=values), POLICY, CLOUDS, "/gpu", "T1"
        )

    assert set(sent("provision", typed="4090").answer["errors"]) == {"hours"}
    assert sent("provision", typed="4090", hours="6h").work is not None
    assert sent("reject").answer["response_action"] == "errors"
    assert sent("reject", reason="too dear").work is not None
    assert set(sent("amount", amount="x").answer["errors"]) == {"amount"}
    assert sent("amount", amount="120").work is not None
    assert sent("unknown") == AckPlan()


def test_the_home_tab_is_work_and_the_rest_is_not() -> None:
    home = InboundMessage(InboundKind.HOME, "U1", "T1")
    assert plan(home, POLICY, CLOUDS, "/gpu", "T1") == AckPlan(work=home)
    assert plan(InboundMessage(InboundKind.OTHER, "U1", "T1"), POLICY, CLOUDS, "/gpu", "T1") == AckPlan()


@given(st.text(max_size=300))
def test_every_answer_fits_and_injects_nothing(text: str) -> None:
    answer = command(text).answer
    if answer:
        assert validate_message(answer) == []
        assert "<!" not in answer["text"]
        assert "<@" not in answer["text"]
        assert "<http" not in answer["text"]
