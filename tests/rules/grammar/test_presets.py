"""Presets: jobs that the policy names, and what other words replace in them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bot.rules.grammar.job import check_presets, listed_presets
from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.policy.policy import Policy
from bot.rules.values.secret_text import UNUSABLE
from bot.services.plans.job_file import read_job

POLICY = Policy(
    presets={
        "nightly": '8xH100 6h max=$150 region=US for="nightly training"',
        "train": "model=7B tokens=2B seq=2048 memory=40GB+",
    }
)


def test_other_words_replace_those_of_the_preset() -> None:
    parsed = parse("provision preset=nightly 4h 4xA100", POLICY)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    job = parsed.job
    assert (job.gpu.count_min, job.hours, job.budget_cap_usd, job.regions) == (4, Decimal(4), Decimal(150), ("US",))
    assert all(name.startswith("A100") for name in job.gpu.names)
    assert job.reason == "nightly training"
    said = {"preset": "nightly", "hours": 4, "resources": {"gpu": "4xA100"}}
    assert read_job(JobDocument.model_validate(said), POLICY) == job


def test_the_words_of_a_run_are_replaced_one_by_one() -> None:
    parsed = parse("plan preset=train tokens=4B", POLICY)
    assert not isinstance(parsed, GrammarError)
    assert parsed.job is not None
    assert set(parsed.job.work) == {"model=7B", "tokens=4B", "seq=2048"}
    same = parse("plan preset=train", POLICY)
    assert not isinstance(same, GrammarError)
    assert same.job is not None
    assert "tokens=2B" in same.job.work


def test_an_unknown_preset_is_named_with_those_that_there_are() -> None:
    wrong = parse("provision preset=nightli", POLICY)
    assert isinstance(wrong, GrammarError)
    assert wrong.message == "“nightli” is not a preset; there are nightly, train. Did you mean nightly?"
    none = parse("provision preset=nightly", Policy())
    assert isinstance(none, GrammarError)
    assert "there are none; the policy names them under presets" in none.message


def test_a_preset_that_lacks_a_time_needs_it_from_the_line() -> None:
    policy = Policy(presets={"big": "8xH100"})
    wrong = parse("provision preset=big", policy)
    assert isinstance(wrong, GrammarError)
    assert wrong.message == "Say for how long, such as 6h or 90m."


def test_a_preset_that_the_policy_no_longer_lets_through_is_refused_as_a_word() -> None:
    policy = Policy(presets={"big": "32xH100 2h"})
    wrong = parse("provision preset=big", policy)
    assert isinstance(wrong, GrammarError)


@pytest.mark.parametrize(
    ("presets", "sentence"),
    [
        ({"no name": "8xH100 6h"}, "presets: `no name` is not a name; use letters, digits, - and _."),
        ({"a": "8xH100 6 weeks"}, "presets.a: "),
        ({"a": 'for="open'}, "presets.a: "),
        ({"a": ""}, "presets.a says nothing; write words such as 8xH100 6h."),
        ({"b": "4090 2h", "a": "preset=b"}, "presets.a names another preset; write words such as 8xH100 6h."),
    ],
)
def test_a_wrong_preset_is_refused_when_the_policy_is_read(presets: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match="The policy is not usable: ") as found:
        check_presets(Policy(presets=presets))
    assert sentence in str(found.value)


def test_right_presets_are_accepted() -> None:
    assert check_presets(POLICY) is POLICY


def test_a_preset_with_a_secret_is_refused_when_it_is_used_and_leaves_the_policy_usable() -> None:
    policy = Policy(
        presets={
            "old": '4090 2h run="HF_TOKEN=hunter22 python x.py"',
            "why": '4090 2h for="DB_PASSWORD=hunter22"',
            "masked": '4090 2h run="wget https://example.com/x?sig=[redacted]"',
            "good": "4090 2h",
        }
    )
    assert check_presets(policy) is policy
    for name, wrong in (
        ("old", "run= contains a secret."),
        ("why", "The reason contains a secret."),
        ("masked", "run= contains an address that was masked."),
    ):
        refused = parse(f"provision preset={name}", policy)
        assert isinstance(refused, GrammarError)
        assert refused.message.startswith(f"The preset {name} can't be used. {wrong}")
        assert "hunter22" not in f"{refused}"
    assert not isinstance(parse("provision preset=good", policy), GrammarError)
    assert [words for _, words in listed_presets(policy.presets)] == [UNUSABLE, UNUSABLE, UNUSABLE, "4090 2h"]
