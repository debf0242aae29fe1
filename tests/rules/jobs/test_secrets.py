"""The word `secrets` and the command `secret`: names only, each mistake by its own sentence, and no value repeated."""

from __future__ import annotations

import pytest

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import BadJob, read_job

POLICY = Policy()


def test_a_line_and_a_file_name_the_same_secrets() -> None:
    parsed = parse("provision 1x4090 2h secrets=HF_TOKEN,WANDB_API_KEY", POLICY)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert parsed.job.secrets == ("HF_TOKEN", "WANDB_API_KEY")
    names = ["HF_TOKEN", "WANDB_API_KEY"]
    document = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2, "secrets": names})
    assert read_job(document, POLICY) == parsed.job
    assert JobRequest.from_json(parsed.job.to_json()) == parsed.job


@pytest.mark.parametrize(
    ("secrets", "sentence"),
    [
        ("hf_token", "A secret is named with 1 to 64 capital letters"),
        ("HF_TOKEN=hf_abc", "Never write its value here."),
        ("LD_PRELOAD", "LD_PRELOAD is a variable of the machine itself"),
        ("HF_TOKEN,HF_TOKEN", "HF_TOKEN is named twice. Keep one of the two."),
    ],
)
def test_a_wrong_name_is_refused(secrets: str, sentence: str) -> None:
    wrong = parse(f"provision 1x4090 2h secrets={secrets}", POLICY)
    assert isinstance(wrong, GrammarError)
    assert sentence in wrong.message
    document = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2, "secrets": secrets.split(",")})
    with pytest.raises(BadJob) as found:
        read_job(document, POLICY)
    assert (found.value.field, sentence in str(found.value)) == ("secrets", True)


def test_a_job_names_at_most_sixteen() -> None:
    many = ",".join(f"A{number}" for number in range(17))
    wrong = parse(f"provision 1x4090 2h secrets={many}", POLICY)
    assert isinstance(wrong, GrammarError)
    assert "17 secrets are above the limit of 16." in wrong.message


@pytest.mark.parametrize(
    "line",
    [
        "secret add HF_TOKEN hf_canary",
        "secret set HF_TOKEN hf_canary",
        "secret add HF_TOKEN=hf_canary",
        "secret hf_canary",
        "secret HF_TOKEN hf_canary",
        "secrets add hf_canary",
        "secret add hf_canary more",
        "secret delete HF_TOKEN hf_canary",
        "secret list hf_canary",
        'secret add HF_TOKEN "hf_canary',
        "/secret add HF_TOKEN 'hf_canary",
    ],
)
def test_a_value_in_a_command_is_refused_and_not_repeated(line: str) -> None:
    wrong = parse(line)
    assert isinstance(wrong, GrammarError)
    assert "canary" not in repr(wrong)
    assert wrong.caret


def test_the_words_of_the_command() -> None:
    assert parse("secret") == ParsedCommand("secret", action="list")
    assert parse("secret set HF_TOKEN") == ParsedCommand("secret", action="add", target="HF_TOKEN")
    assert parse("secret remove HF_TOKEN") == ParsedCommand("secret", action="delete", target="HF_TOKEN")
    wrong = parse("secret add")
    assert isinstance(wrong, GrammarError)
    assert wrong.message == "Name the secret, as in secret add HF_TOKEN."
    typed = parse("secret add HF_TOKEN hf_canary")
    assert isinstance(typed, GrammarError)
    assert typed.message == (
        "A form asks for the value. If you typed a value here, Slack has it now: nothing was stored, so revoke it and "
        "make a new one."
    )
