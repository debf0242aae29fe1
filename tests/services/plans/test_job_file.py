"""The portable job request: a file, a REST body and a Slack command that say the same become the same request."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from bot.rules.grammar.parser import GrammarError, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.policy import Policy
from bot.services.plans.job_file import BadJob, completed, read_job

POLICY = Policy()


def read(document: dict[str, Any], command: str = "provision") -> JobRequest:
    return read_job(JobDocument.model_validate(document), POLICY, command)


def typed(line: str) -> JobRequest:
    found = parse(line, POLICY)
    assert not isinstance(found, GrammarError), found
    assert found.job is not None
    return found.job


SPOT = "provision 4090 2h spot=yes price=$0.75 reliability=98%"
SAME: list[tuple[str, str]] = [
    ("{resources: {gpu: 'A100:8'}, hours: 6}", "provision 8xA100 6h"),
    (
        "{resources: {gpu: {name: A100, count: 8, memory: 40GB+}, disk: 200GB}, hours: 90m, budget: 50}",
        "provision gpu=A100 count=8 memory=40GB+ disk=200 90m max=$50",
    ),
    ("{resources: {gpu: {memory: 80+, count: 2-4}}, hours: 2}", "provision memory=80GB+ count=2-4 2h"),
    ("{resources: {gpu: {name: '4090', count: 2+}}, hours: 2}", "provision 4090 count=2-16 2h"),
    ("{resources: {gpu: {name: ['4090', 3090]}, disk: 1TB+}, hours: 2}", "provision gpu=4090,3090 disk=1TB 2h"),
    (
        (
            "{resources: {gpu: '4090'}, hours: 1.5, candidates: [runpod, vast], regions: [US, EU], spot: any, "
            "candidates_order: cheapest}"
        ),
        "provision 4090 90m clouds=runpod,vast region=US,EU spot=any",
    ),
    ("{resources: {gpu: '4090'}, hours: 2, spot: no}", "provision 4090 2h spot=no"),
    ("{resources: {gpu: '4090'}, hours: 2, spot: yes, max_price: 0.75, reliability: 98%}", SPOT),
    (
        "{offer: 'vast:7', hours: 2, run: python t.py, image: 'a/b:1', checkpoint: 'hf://o/m', reason: it's due}",
        """provision offer=vast:7 2h run="python t.py" image=a/b:1 checkpoint=hf://o/m for="it's due" """,
    ),
    (
        "{work: {model: 7B, tokens: 2B, seq: 2048, batch: 512, checkpointing: yes}, workload: training}",
        "provision model=7B tokens=2B seq=2048 batch=512 checkpointing=yes workload=training",
    ),
    ("{resources: {gpu: '4090'}, hours: 2, label: mosaic}", "provision 4090 2h label=mosaic"),
    ("{offer: 'vast:123', hours: 3}", "provision offer=vast:123 hours=3"),
    ("{resources: {gpu: 'A100:2-4'}, hours: 2}", "provision gpu=A100 count=2-4 2h"),
    ("{resources: {gpu: 'A100:4+'}, hours: 2}", "provision gpu=A100 count=4-16 2h"),
    ("{resources: {gpu: {name: A100, memory: 40-80GB}}, hours: 2}", "provision gpu=A100 memory=40-80GB 2h"),
]


@pytest.mark.parametrize(("text", "line"), SAME)
def test_yaml_says_what_slack_says(text: str, line: str) -> None:
    told = yaml.safe_load(text)
    assert read(_text_names(told)) == typed(line)


def _text_names(told: dict[str, Any]) -> dict[str, Any]:
    """YAML reads 3090 as a number; a name is text."""
    gpu = told.get("resources", {}).get("gpu")
    if isinstance(gpu, dict) and isinstance(gpu.get("name"), list):
        gpu["name"] = [str(one) for one in gpu["name"]]
    return told


def test_a_value_may_hold_what_a_line_cannot() -> None:
    run = """python -c "print('a=b', 1)" """.strip()
    found = read({"resources": {"gpu": "4090"}, "hours": 2, "run": run, "reason": 'so that "it" = 2'})
    assert (found.run, found.reason) == (run, 'so that "it" = 2')


#: A job that is complete.
ONE: dict[str, Any] = {"resources": {"gpu": "4090"}, "hours": 2}
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"candidates": ["autodl"]}, "candidates", "“autodl” is not a cloud; there are vast,"),
    ({"resources": {"gpu": "RTX9999"}}, "resources.gpu.name", "is not a GPU that is known here"),
    ({"resources": {"gpu": {"name": "4090", "count": "4-2"}}}, "resources.gpu.count", "runs backwards"),
    ({"resources": {"gpu": {"name": "4090", "count": "20+"}}}, "resources.gpu.count", "20 GPUs are above the limit"),
    ({"resources": {"gpu": {"name": "4090", "memory": "lots"}}}, "resources.gpu.memory", "not a memory size"),
    ({"resources": {"gpu": "4090", "disk": "big"}}, "resources.disk", "not a disk size"),
    ({"hours": "soon"}, "hours", "not a time"),
    ({"budget": "cheap"}, "budget", "not an amount of money"),
    ({"spot": "maybe"}, "spot", "does not answer spot"),
    ({"work": {"modle": "7B"}}, "work.modle", "not a known word"),
    ({"work": {"model": "7B", "tokens": "many"}}, "work.tokens", "tokens"),
    ({}, "", "Say which GPU"),
    ({"resources": {"gpu": "4090"}, "hours": None}, "", "Say for how long"),
    ({"ssh_public_key": "-----BEGIN OPENSSH PRIVATE KEY-----"}, "ssh_public_key", "private key"),
    ({"ssh_public_key": "hello"}, "ssh_public_key", "not a public key"),
]


@pytest.mark.parametrize(("document", "field", "says"), WRONG)
def test_what_is_wrong_is_named_with_its_field(document: dict[str, Any], field: str, says: str) -> None:
    whole = {"resources": {"gpu": "4090"}, "hours": 2, **document} if document else {}
    with pytest.raises(BadJob) as refused:
        read(whole)
    assert refused.value.field == field
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [{"gpus": "4090"}, {"resources": {"gpu": {"model": "A100"}}}, {"hours": float("nan")}, {"hours": "1" * 2000}],
)
def test_what_the_model_does_not_know_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JobDocument.model_validate(document)


def test_a_key_of_its_own_is_stored_without_its_comment() -> None:
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
    found = read({"resources": {"gpu": "4090"}, "hours": 2, "ssh_public_key": f"{line} me@laptop"})
    assert found.public_key == line
    assert replace(found, public_key=None) == typed("provision 4090 2h")
    assert JobRequest.from_json(found.to_json()) == found


def test_a_plan_needs_no_gpu() -> None:
    assert read({"hours": 6}, "plan").hours == 6


def test_files_are_fetched_before_the_command() -> None:
    job = read({"resources": {"gpu": "4090"}, "hours": 2, "run": "python a.py", "file_mounts": {"/data": "s3://bbb/d"}})
    assert (job.run, job.mounts) == ("python a.py", ("COPY /data s3://bbb/d",))
    with pytest.raises(BadJob, match="is not a source") as refused:
        read({"resources": {"gpu": "4090"}, "hours": 2, "file_mounts": {"/data": "/etc"}})
    assert refused.value.field == "file_mounts"


def test_files_have_two_shapes_and_are_never_copied_where_a_mount_was_asked_for() -> None:
    short = read({**ONE, "file_mounts": {"/data": "s3://bbb/d"}})
    long = read({**ONE, "file_mounts": {"/data": {"source": "s3://bbb/d", "mode": "COPY"}}})
    assert short.mounts == long.mounts == ("COPY /data s3://bbb/d",)
    for mode in ("MOUNT", "MOUNT_CACHED"):
        job = read({**ONE, "file_mounts": {"/data": {"source": "s3://bbb/d", "mode": mode}}})
        assert job.mounts == (f"{mode} /data s3://bbb/d",)
        assert JobRequest.from_json(job.to_json()) == job
        with pytest.raises(BadJob, match=r"hf:// can't be mounted.*write mode: COPY") as refused:
            read({**ONE, "file_mounts": {"/data": {"source": "hf://org/name", "mode": mode}}})
        assert refused.value.field == "file_mounts"
    with pytest.raises(BadJob, match="needs a mode; write mode: COPY"):
        read({**ONE, "file_mounts": {"/data": {"source": "s3://bbb/d"}}})
    for wrong in ({"source": "s3://bbb/d", "mode": "SOFTLINK"}, {"mode": "COPY"}, {"source": "s3://b", "to": "x"}):
        with pytest.raises(ValidationError):
            JobDocument.model_validate({**ONE, "file_mounts": {"/data": wrong}})


def test_candidates_are_a_fallback_order_unless_the_cheapest_of_them_is_asked_for() -> None:
    two = {**ONE, "candidates": ["runpod", "vast"]}
    assert (read(two).candidates, read(two).clouds_in_order) == (("runpod", "vast"), True)
    assert read({**two, "candidates_order": "cheapest"}) == typed("provision 4090 2h clouds=runpod,vast")
    assert not read({**ONE, "candidates": ["vast"]}).clouds_in_order
    assert not read({**ONE, "candidates_order": "listed"}).clouds_in_order
    assert JobRequest.from_json(read(two).to_json()) == read(two)


def test_a_program_has_defaults() -> None:
    said = JobDocument.model_validate({"resources": {"gpu": "4090"}, "hours": 2})
    full = completed(said, {"hours": "9", "spot": "any", "max_price": "0.5"})
    assert (full.hours, full.spot, full.max_price) == (Decimal(2), "any", "0.5")
    words = JobDocument.model_validate({"words": "1x4090 2h"})
    assert completed(words, {"spot": "any"}) is words
    assert completed(said, {}) is said
    with pytest.raises(BadJob, match="default for gpus"):
        completed(said, {"gpus": "4090"})
