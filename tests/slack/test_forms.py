"""Dialogs: they are valid, and what is put into them is read like the `/gpu` language, with errors at the fields."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.blockkit import validate_view
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.rules.stacks.stack import STACKS
from bot.services.plans.job_file import BadJob, read_job
from bot.slack import forms, modals

POLICY = Policy()
SPEND = modals.ConfirmedSpend(
    "vast:123", Decimal("120.50"), Decimal(180), Decimal("12.05"), Decimal(10), Decimal("120.50")
)
FULL = {
    "gpu": "RTX4090",
    "typed": "H100-SXM",
    "count": "2-4",
    "hours": "1h30m",
    "disk": "200GB",
    "max": "$50",
    "price": "$2.50",
    "clouds": ["vast", "runpod"],
    "spot": "any",
    "install": "train",
    "secrets": "HF_TOKEN, WANDB_API_KEY",
    "for": "  fine-tune\nof it ",
}


def test_a_full_form_is_a_job() -> None:
    job = forms.read_job(FULL, POLICY)
    assert isinstance(job, JobRequest)
    assert job.gpu.names == ("RTX4090", "H100-SXM")
    assert (job.gpu.count_min, job.gpu.count_max) == (2, 4)
    assert (job.hours, job.disk_gb, job.spot) == (Decimal("1.5"), 200, SpotPolicy.ANY)
    assert (job.budget_cap_usd, job.max_price_usd_h) == (Decimal(50), Decimal("2.50"))
    assert job.candidates == ("vast", "runpod")
    assert (job.install, job.secrets) == ("train", ("HF_TOKEN", "WANDB_API_KEY"))
    assert job.reason == "fine-tune of it"


def test_the_least_that_is_needed() -> None:
    job = forms.read_job({"typed": "4x4090", "hours": "6"}, POLICY)
    assert isinstance(job, JobRequest)
    assert (job.gpu.count_min, job.hours, job.spot, job.reason) == (4, Decimal(6), SpotPolicy.NO, "")


def test_a_run_can_be_described_instead_of_a_time() -> None:
    job = forms.read_job({"work": "model=7B tokens=2B seq=2048"}, POLICY)
    assert isinstance(job, JobRequest)
    assert job.work == ("model=7B", "tokens=2B", "seq=2048")
    assert (job.gpu.count_min, job.gpu.count_max) == (1, POLICY.max_gpus)
    both = forms.read_job({"typed": "2x4090", "hours": "6", "work": "model=7B"}, POLICY)
    assert both == {"work": forms.TWO_TIMES}
    for_any = {"gpu": modals.ANY, "hours": modals.ANY, "work": "model=7B tokens=2B seq=2048"}
    assert forms.read_job(for_any, POLICY) == job
    counted = forms.read_job({"typed": "2x4090", "work": "model=7B tokens=2B"}, POLICY)
    assert isinstance(counted, JobRequest)
    assert counted.gpu.count_max == 2


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("model=7B", "How many tokens are processed"),
        ("7B", "does not describe a run"),
        ("disk=7", "does not describe a run"),
        ("seq=far model=7B", "is not a length"),
        ('model="7B', "not closed"),
    ],
)
def test_a_run_that_says_too_little_is_explained_at_its_field(typed: str, said: str) -> None:
    found = forms.read_job({"work": typed}, POLICY)
    assert isinstance(found, dict)
    assert found.keys() == {"work"}
    assert said in found["work"]


@pytest.mark.parametrize(
    ("changes", "block", "said"),
    [
        ({"gpu": "", "typed": ""}, "gpu", "Say which GPU"),
        ({"typed": "RTX 9999"}, "typed", "not a GPU"),
        ({"count": "0"}, "count", "At least one"),
        ({"count": "900"}, "count", "limit"),
        ({"typed": "2x4090", "count": "3"}, "count", "Keep one of the two"),
        ({"hours": ""}, "hours", "how long"),
        ({"hours": "0"}, "hours", "above zero"),
        ({"hours": "10000h"}, "hours", "limit"),
        ({"hours": "soon"}, "hours", "not a time"),
        ({"disk": "-5"}, "disk", "disk"),
        ({"max": "-3"}, "max", "negative"),
        ({"price": "free"}, "price", "amount"),
        ({"install": "everything"}, "install", "can't be installed by name; there are train and serve"),
        ({"secrets": "HF_TOKEN,HF_TOKEN"}, "secrets", "twice"),
        ({"secrets": "my-token"}, "secrets", "HF_TOKEN"),
        ({"for": "x" * 3_000}, "for", "3,000 characters"),
    ],
)
def test_errors_stand_at_their_field(changes: dict[str, Any], block: str, said: str) -> None:
    errors = forms.read_job({**FULL, **changes}, POLICY)
    assert isinstance(errors, dict)
    assert set(errors) == {block}
    assert said in errors[block]


def test_every_error_at_once() -> None:
    errors = forms.read_job({"typed": "nothing", "hours": "0", "max": "x"}, POLICY)
    assert isinstance(errors, dict)
    assert set(errors) == {"typed", "hours", "max"}


def inputs(form: modals.ProvisionForm | None = None, policy: Policy = POLICY) -> dict[str, dict[str, Any]]:
    """The fields of the form by their block."""
    view = modals.provision("C1", ["vast"], policy, form)
    assert validate_view(view) == []
    return {block["block_id"]: block for block in view["blocks"] if block["type"] == "input"}


def test_the_form_asks_for_two_things_proposes_both_and_asks_what_for() -> None:
    sale = [("A40", "A40 · 48 GB · from $0.30/h"), ("RTX4090", "RTX4090 · 24 GB · from $0.35/h")]
    shown = inputs(modals.ProvisionForm(sale, "RTX4090"))
    assert [(name, block["optional"]) for name, block in shown.items()] == [
        ("gpu", False),
        ("hours", False),
        ("for", True),
    ]
    assert shown["for"]["label"]["text"] == "What for? (approvers read this)"
    values = {name: shown[name]["element"]["initial_option"]["value"] for name in ("gpu", "hours")}
    assert values == {"gpu": "RTX4090", "hours": "2h"}
    assert [one["text"]["text"] for one in shown["gpu"]["element"]["options"]] == [label for _, label in sale]
    job = forms.read_job(values, POLICY)
    assert isinstance(job, JobRequest)
    assert (job.gpu.names, job.hours) == (("RTX4090",), Decimal(2))


def test_more_options_keep_what_is_chosen_and_add_the_rest() -> None:
    form = modals.ProvisionForm([("A40", "A40")], "A40", "6h", more=True)
    shown = inputs(form)
    assert shown["gpu"]["element"]["initial_option"]["value"] == "A40"
    assert shown["hours"]["element"]["initial_option"]["value"] == "6h"
    rest = ["typed", "count", "disk", "clouds", "spot", "max", "price", "limits", "work", "install", "secrets"]
    assert list(shown) == ["gpu", "hours", "for", *rest]
    view = modals.provision("C1", ["vast"], POLICY, form)
    groups = [block["text"]["text"] for block in view["blocks"] if block["type"] == "section"]
    assert groups == ["*Machine*", "*Limits*", "*Work*"]


def test_the_software_of_the_form_is_what_the_word_installs() -> None:
    options = inputs(modals.ProvisionForm(more=True))["install"]["element"]["options"]
    assert [one["value"] for one in options] == list(STACKS)
    for one in options:
        job = forms.read_job({"gpu": "A40", "hours": "2h", "install": one["value"]}, POLICY)
        assert isinstance(job, JobRequest)
        assert job.install == one["value"]


def test_every_time_of_the_form_is_a_word_and_says_when_an_override_is_needed() -> None:
    policy = Policy(max_hours=Decimal(12), max_hours_ever=Decimal(48))
    options = inputs(policy=policy)["hours"]["element"]["options"]
    for one in options:
        job = forms.read_job({"gpu": "A40", "hours": one["value"]}, policy)
        assert isinstance(job, JobRequest)
        assert ("override" in one["text"]["text"]) == (job.hours > 12)
    assert options[-1]["text"]["text"] == "48 hours (above 12 hours: needs an override)"


PRESETS = Policy(presets={"nightly": '4xA40 6h spot=yes max=$50 for="nightly training"', "p" * 40: "8xH100 2h"})


def test_the_presets_of_the_policy_are_a_field_and_without_one_the_form_is_as_before() -> None:
    shown = inputs(policy=PRESETS)["preset"]["element"]
    assert [one["value"] for one in shown["options"]] == ["-", "nightly", "p" * 40]
    assert shown["options"][1]["text"]["text"].startswith("nightly: 4xA40 6h spot=yes")
    assert shown["initial_option"]["value"] == "-"
    assert "preset" not in inputs()
    plain = forms.read_job({"gpu": "A40", "hours": "2h"}, PRESETS)
    assert forms.read_job({"preset": "-", "gpu": "A40", "hours": "2h"}, PRESETS) == plain


def test_a_chosen_preset_fills_the_form_until_a_field_says_something_else() -> None:
    form = modals.ProvisionForm([("A40", "A40")], "any", "any", more=True, preset="nightly")
    shown = inputs(form, PRESETS)
    chosen = {name: block["element"].get("initial_option", {}).get("value", "") for name, block in shown.items()}
    assert [chosen[name] for name in ("preset", "gpu", "hours", "spot")] == ["nightly", "any", "any", ""]
    assert shown["gpu"]["element"]["initial_option"]["text"]["text"] == "As in the preset"
    job = forms.read_job(chosen, PRESETS)
    assert isinstance(job, JobRequest)
    assert (job.gpu.names, job.gpu.count_min, job.hours, job.spot) == (("A40",), 4, Decimal(6), SpotPolicy.YES)
    assert (job.budget_cap_usd, job.reason) == (Decimal(50), "nightly training")
    other = forms.read_job({**chosen, "hours": "3h", "spot": "no", "for": "a test"}, PRESETS)
    assert isinstance(other, JobRequest)
    assert (other.gpu.count_min, other.hours, other.spot, other.reason) == (4, Decimal(3), SpotPolicy.NO, "a test")


def test_slack_forgets_what_was_chosen_before_the_preset() -> None:
    """It keeps a choice while the name of the action is the same."""
    names: list[str] = []
    for preset in ("", "nightly", "p" * 40):
        shown = inputs(modals.ProvisionForm(more=True, preset=preset), PRESETS)
        names += [shown[block]["element"]["action_id"] for block in ("gpu", "hours", "spot")]
    assert len(set(names)) == 9


def test_a_preset_that_the_policy_no_longer_has_is_said_at_its_field() -> None:
    errors = forms.read_job({"preset": "weekly", "gpu": "A40", "hours": "2h"}, PRESETS)
    assert isinstance(errors, dict)
    assert errors["preset"].startswith("“weekly” is not a preset; there are nightly")


def test_a_reason() -> None:
    assert forms.read_reason({"reason": " too\u202e dear "}, POLICY) == "too dear"
    assert "reason" in forms.read_reason({"reason": "  "}, POLICY)
    assert "reason" in forms.read_reason({}, POLICY)
    assert "reason" in forms.read_reason({"reason": "x" * 501}, POLICY)


def test_a_confirmation() -> None:
    assert forms.read_confirmation({"amount": "$120.50", "cap": ""}) == ("$120.50", None)
    assert forms.read_confirmation({"amount": "120.50", "cap": "$80"}) == ("120.50", Decimal(80))
    assert set(forms.read_confirmation({"amount": "yes", "cap": "-1"})) == {"amount", "cap"}
    assert set(forms.read_confirmation({"amount": "1", "cap": "0"})) == {"cap"}
    assert set(forms.read_confirmation({})) == {"amount"}


FIELD = st.text(max_size=40) | st.lists(st.text(max_size=10), max_size=3) | st.none()


@given(st.dictionaries(st.sampled_from([*FULL, "reason", "amount", "cap"]), FIELD))
def test_no_input_raises_and_every_error_fits(values: dict[str, Any]) -> None:
    shown = modals.provision("C1", ["vast"], POLICY, modals.ProvisionForm(more=True))["blocks"]
    blocks = {block["block_id"] for block in shown if block["type"] == "input"}
    found = forms.read_job(values, POLICY)
    if isinstance(found, dict):
        assert found
        assert set(found) <= blocks
        assert all(0 < len(message) <= 300 for message in found.values())
    forms.read_reason(values, POLICY)
    forms.read_confirmation(values)


@given(st.text(max_size=600), st.text(max_size=600), st.decimals(0, 10**9, places=6))
def test_dialogs_are_valid_for_any_text(problem: str, offer: str, amount: Decimal) -> None:
    spend = modals.ConfirmedSpend(offer, amount, amount, amount, Decimal(1), amount)
    for view in (
        modals.amount("token", spend, problem),
        modals.reject("token", POLICY),
        modals.provision("C1", ["vast", "runpod"], POLICY),
        modals.provision("C1", [], Policy(max_reason_chars=100_000), modals.ProvisionForm(more=True)),
    ):
        assert validate_view(view) == []


def test_the_dialog_says_what_holds_for_all_attempts_together() -> None:
    again = replace(SPEND, spent_usd=Decimal("1.5"))
    assert "$1.50" in str(modals.amount("t", again))
    held = replace(again, limit_usd=Decimal(4), limit_by="slack:T1/U0BOB")
    shown = str(modals.amount("t", held))
    for part in ("*Limit for all attempts* $4.00, set by <@U0BOB>", "Empty: $4.00 stays the limit", "$1.50"):
        assert part in shown
    assert validate_view(modals.amount("t", held)) == []


def test_a_dialog_about_a_decision_carries_only_the_token() -> None:
    assert modals.amount("opaque", SPEND)["private_metadata"] == "opaque"
    assert modals.reject("opaque", POLICY)["private_metadata"] == "opaque"
    shown = str(modals.amount("opaque", SPEND, "wrong"))
    for part in ("$120.50", "$180.00", "$12.05/h", "10 hours", "vast:123", "wrong"):
        assert part in shown


def test_further_limits_are_words_of_the_language() -> None:
    values = {"typed": "4090", "hours": "2", "limits": "verified=yes total=80GB cuda=12.4 region=EU"}
    job = forms.read_job(values, POLICY)
    assert isinstance(job, JobRequest)
    assert (job.verified_only, job.memory_gb_total_min, job.min_cuda) == (True, Decimal(80), Decimal("12.4"))
    assert job.regions == ("EU",)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("price=$2", "is not a limit; there are memory, total"),
        ("fast", "is not a limit"),
        ("cuda=new", "is not a version"),
        ('verified="yes', "not closed"),
    ],
)
def test_what_is_no_limit_is_said_under_its_field(typed: str, said: str) -> None:
    found = forms.read_job({"typed": "4090", "hours": "2", "limits": typed}, POLICY)
    assert isinstance(found, dict)
    assert found.keys() == {"limits"}
    assert said in found["limits"]


#: A block of the form, the word of the language, the field of a document, and a value that none of them takes.
WRONG_EVERYWHERE = (
    ("typed", "gpu", {"resources": {"gpu": {"name": "RTX9999"}}}, "RTX9999"),
    ("count", "count", {"resources": {"gpu": {"count": "900"}}}, "900"),
    ("count", "count", {"resources": {"gpu": {"count": "4-2"}}}, "4-2"),
    ("hours", "hours", {"hours": "soon"}, "soon"),
    ("hours", "hours", {"hours": "10000h"}, "10000h"),
    ("disk", "disk", {"resources": {"disk": "big"}}, "big"),
    ("max", "max", {"budget": "-3"}, "-3"),
    ("price", "price", {"max_price": "free"}, "free"),
    ("clouds", "clouds", {"candidates": ["autodl"]}, "autodl"),
    ("spot", "spot", {"spot": "maybe"}, "maybe"),
    ("for", "for", {"reason": "x" * 600}, "x" * 600),
    ("limits", "reliability", {"reliability": "200%"}, "200%"),
    ("work", "tokens", {"work": {"tokens": "many"}}, "many"),
)


def test_the_same_bad_input_gets_the_same_sentence_everywhere() -> None:
    for block, word, field, value in WRONG_EVERYWHERE:
        line = parse(f"provision {word}={value}", POLICY)
        assert isinstance(line, GrammarError), word
        typed = f"{word}={value}" if block in ("limits", "work") else value
        form = forms.read_job({"typed": "4090", "hours": "" if block == "work" else "2", block: typed}, POLICY)
        assert isinstance(form, dict)
        with pytest.raises(BadJob) as document:
            read_job(JobDocument.model_validate(field), POLICY)
        assert form == {block: line.message}
        assert str(document.value) == line.message


def test_what_is_not_said_is_asked_for_with_the_same_sentence_everywhere() -> None:
    for values, line, block in (({"hours": "2"}, "2h", "gpu"), ({"typed": "4090"}, "4090", "hours")):
        typed = parse(f"provision {line}", POLICY)
        assert isinstance(typed, GrammarError)
        assert forms.read_job(values, POLICY) == {block: typed.message}
        with pytest.raises(BadJob) as document:
            read_job(JobDocument(words=line), POLICY)
        assert str(document.value) == typed.message


def test_a_form_a_line_and_a_document_become_the_same_request() -> None:
    line = parse("provision model=7B tokens=2B seq=2048 price=$3 verified=yes", POLICY)
    assert isinstance(line, ParsedCommand)
    form = {"work": "model=7B tokens=2B seq=2048", "price": "$3", "limits": "verified=yes"}
    document = {"work": {"model": "7B", "tokens": "2B", "seq": 2048}, "max_price": 3, "verified": True}
    assert forms.read_job(form, POLICY) == line.job
    assert read_job(JobDocument.model_validate(document), POLICY) == line.job
