"""Offers for a job with secrets: only machines that start an agent, because nothing else receives one."""

from __future__ import annotations

from typing import Any

import pytest

from bot.rules.market.ranking import rank
from bot.rules.policy.policy import Policy
from tests.rules.builders import capabilities, job, offer


@pytest.mark.parametrize(
    ("able", "image", "answered"),
    [({"batch": True}, None, 0), ({"onstart_is_command": True}, "a/b:1", 0), ({"onstart_is_command": True}, None, 1)],
)
def test_secrets_need_a_machine_with_an_agent(able: dict[str, Any], image: str | None, answered: int) -> None:
    wanted = job(secrets=("HF_TOKEN",), run="python x.py", image=image)
    found = rank([offer(cloud="runpod")], wanted, Policy(), {"runpod": capabilities(**able)})
    assert found.answered == answered
    assert [one.reason_code for one in found.excluded] == ([] if answered else ["secrets"])
