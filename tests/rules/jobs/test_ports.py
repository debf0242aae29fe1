"""The word `ports` in a line and in a job file: what is asked for, and each mistake by its own sentence."""

from __future__ import annotations

import pytest

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import BadJob, read_job

POLICY = Policy()


def test_a_line_and_a_file_ask_for_the_same_ports() -> None:
    parsed = parse("provision 1x4090 2h ports=8888/http,6006", POLICY)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert parsed.job.ports == ("8888/http", "6006/tcp")
    document = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2, "ports": ["8888/http", 6006]})
    assert read_job(document, POLICY) == parsed.job


@pytest.mark.parametrize(
    ("ports", "sentence"),
    [
        ("70000", "“70000” has no ports from 1 to 65535; write ports=8888/http,6006."),
        ("8888/udp", "“8888/udp” has no ports from 1 to 65535; write ports=8888/http,6006."),
        ("8888,8888/http", "Port 8888 is named twice. Keep one of the two."),
        ("22", "Port 22 is always open for SSH, so leave it out."),
        (",".join(map(str, range(1000, 1011))), "11 ports are above the limit of 10."),
    ],
)
def test_a_wrong_port_is_named(ports: str, sentence: str) -> None:
    wrong = parse(f"provision 1x4090 2h ports={ports}", POLICY)
    assert isinstance(wrong, GrammarError)
    assert sentence in wrong.message
    document = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2, "ports": ports.split(",")})
    with pytest.raises(BadJob) as found:
        read_job(document, POLICY)
    assert (found.value.field, sentence in str(found.value)) == ("ports", True)
