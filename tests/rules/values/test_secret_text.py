"""A job and a reason with a secret in them are refused with one sentence, which repeats none of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.checks import check_secrets
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values import secret_text
from bot.rules.values.reply_code import ReplyCode
from bot.services.plans.job_file import BadJob, read_job
from bot.slack import forms
from providers.gpus.constraint import GpuConstraint
from tests.ledger.kernel.growth import assert_linear

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
STORE = "Store it with `gpu-shopper secret set NAME`, add secrets=NAME, and read it as $NAME."
READ = "Others read it, so leave that out. A job gets a secret with secrets=NAME."
SIGNED = "https://b.s3.amazonaws.com/x.pt?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F2026&X-Amz-Signature=0123456789abcdef"
JOB = JobRequest(GpuConstraint(("H100",)), Decimal(1))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f'provision 1x4090 2h run="python x.py --hub-token {TOKEN}"', f"run= contains a Hugging Face token. {STORE}"),
        (
            f'provision 1x4090 2h run="HF_TOKEN={TOKEN} python x.py',
            f"The command contains a Hugging Face token. {STORE}",
        ),
        (f'provision 1xnothing 2h run="HF_TOKEN={TOKEN} x"', f"run= contains a Hugging Face token. {STORE}"),
        ('provision 1x4090 2h for="DB_PASSWORD=hunter22 is in it"', f"The reason contains a secret. {READ}"),
        (
            "provision 1x4090 2h checkpoint=https://ada:hunter2@example.com/run",
            f"checkpoint= contains a user name and password. {STORE}",
        ),
        (f"extend 4k7m2p 2h because {TOKEN}", f"The command contains a Hugging Face token. {STORE}"),
        (f"break-glass 4k7m2p {TOKEN} was leaked", f"The command contains a Hugging Face token. {STORE}"),
    ],
)
def test_a_line_with_a_secret_is_refused_and_not_repeated(line: str, sentence: str) -> None:
    refused = parse(line)
    assert isinstance(refused, GrammarError)
    assert (refused.message, refused.code) == (sentence, ReplyCode.SECRET_IN_TEXT)
    shown = f"{refused} {refused.caret}"
    assert not [text for text in (TOKEN, "hunter2") if text in shown]
    assert isinstance(parse(refused.example), ParsedCommand)


@pytest.mark.parametrize(
    "line",
    [
        'provision 1x4090 2h run="HF_TOKEN=$HF_TOKEN python x.py --hf_transfer" secrets=HF_TOKEN',
        f"provision 1x4090 2h checkpoint={SIGNED}",
        f"provision 1x4090 2h run=\"wget '{SIGNED}'\"",
        'provision 1x4090 2h for="sk-learn at 3f786850e387550fdab836ed7e6dc881de23001b"',
    ],
)
def test_a_variable_a_presigned_address_and_a_digest_pass(line: str) -> None:
    parsed = parse(line)
    assert isinstance(parsed, ParsedCommand), parsed


@pytest.mark.parametrize(
    ("field", "document"),
    [
        ("run", {"run": f"HF_TOKEN={TOKEN} python x.py"}),
        ("run", {"run": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE"}),
        ("reason", {"reason": f"because {TOKEN}"}),
        ("checkpoint", {"checkpoint": "https://ada:hunter2@example.com/run"}),
        ("file_mounts", {"file_mounts": {"/data": f"https://example.com/{TOKEN}/x.tar"}}),
        ("queue", {"queue": [f"HF_TOKEN={TOKEN} a", "b"]}),
    ],
)
def test_a_document_with_a_secret_is_refused_by_its_field(field: str, document: dict[str, object]) -> None:
    full = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2, **document})
    with pytest.raises(BadJob) as refused:
        read_job(full, Policy())
    assert (refused.value.code, refused.value.field) == (ReplyCode.SECRET_IN_TEXT, field)
    assert not [text for text in (TOKEN, "hunter2", "b3Blb") if text in str(refused.value)]


def test_the_form_of_slack_refuses_it_at_its_field() -> None:
    values = {"gpu": "RTX4090", "hours": "2h", "for": f"because {TOKEN}"}
    assert forms.read_job(values, Policy()) == {"for": f"The reason contains a Hugging Face token. {READ}"}
    assert forms.read_reason({"reason": TOKEN}, Policy()) == {
        "reason": f"The reason contains a Hugging Face token. {READ}"
    }


@pytest.mark.parametrize(
    ("field", "job"),
    [
        ("run=", replace(JOB, run=f"x {TOKEN}")),
        ("queue=", replace(JOB, queue=("a", f"x {TOKEN}"))),
        ("checkpoint=", replace(JOB, checkpoint=f"https://{TOKEN}:x1@example.com/x")),
        ("file_mounts", replace(JOB, mounts=(f"COPY /data https://example.com/{TOKEN}",))),
    ],
)
def test_a_job_that_was_stored_before_is_refused_when_it_is_asked_for_again(field: str, job: JobRequest) -> None:
    wrong = check_secrets(job)
    assert wrong is not None
    assert (wrong.code, wrong.sentence.partition(" ")[0]) == (ReplyCode.SECRET_IN_TEXT, field)
    assert check_secrets(replace(JOB, run="HF_TOKEN=$HF_TOKEN x", checkpoint=SIGNED)) is None
    assert secret_text.problem("run=", f"wget {SIGNED}") == ""


@pytest.mark.parametrize(
    "read",
    [
        secret_text.has_secret,
        lambda text: parse("provision 1x4090 2h", more=[("queue", text)]),
        lambda text: parse("provision 1x4090 2h", more=[("reason", text)]),
        lambda text: parse(f"provision 1x4090 2h run={text}"),
        lambda text: parse(f'provision 1x4090 2h run="{text}"'),
        lambda text: parse(f"extend 4k7m2p 2h {text}"),
    ],
)
@pytest.mark.parametrize("unit", ["a", "a=", "a.", "eyJ", "xoxb-", "a ", "://a:b", "--a "])
def test_a_long_text_is_refused_in_a_time_that_grows_as_the_text(read: Callable[[str], Any], unit: str) -> None:
    assert_linear(read, unit)


def test_a_queue_of_long_commands_is_read() -> None:
    commands = [f"python train.py --name {'a' * 990}"[:990] for _ in range(60)]
    parsed = parse("provision 1x4090 2h", more=[("queue", json.dumps(commands))])
    assert isinstance(parsed, ParsedCommand)
    assert parsed.job is not None
    assert check_secrets(parsed.job) is None
    assert len(parsed.job.queue) == 60
    assert_linear(lambda text: check_secrets(replace(JOB, queue=(text,) * 60)), "a", short=120)


def test_a_reason_that_is_too_long_is_measured_before_it_is_searched() -> None:
    wrong = job_bounds.reason(f"{TOKEN} " * 100, Policy())
    assert wrong is not None
    assert wrong.code is ReplyCode.REASON_TOO_LONG
