"""Which jobs start a model server, and with which words."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from bot.agent.startup.plan import read_plan
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.serve import is_model, model_server
from bot.rules.jobs.startup_plan import plan_startup
from bot.rules.values.serving import is_serving
from bot.wire.codec import to_json
from providers.gpus.constraint import GpuConstraint

JOB = JobRequest(GpuConstraint(), Decimal(2), install="serve", workload="serve", model="org/tiny")


@pytest.mark.parametrize(
    "job",
    [
        replace(JOB, install="train"),
        replace(JOB, install=None),
        replace(JOB, workload="training"),
        replace(JOB, model=None),
        replace(JOB, model="7B"),
    ],
)
def test_only_a_served_model_with_its_software_has_a_server(job: JobRequest) -> None:
    assert model_server(job) is None


def test_it_listens_on_the_machine_alone() -> None:
    server = model_server(replace(JOB, workload="Inference"))
    assert server is not None
    assert server.argv[:5] == ("vllm", "serve", "org/tiny", "--host", "127.0.0.1")


def test_the_agent_reads_it_and_an_agent_of_before_skips_it() -> None:
    plan = plan_startup("ins_1", replace(JOB, run="python bench.py"), {})
    assert plan is not None
    assert [one.name for one in plan.steps][-2:] == ["run", "serve"]
    read = read_plan(to_json(plan))
    assert read is not None
    last = read.steps[-1]
    assert last.serve is not None
    assert (last.serve.model, last.needs, last.limit_s) == ("org/tiny", ("python packages",), 1800)
    assert last.script.endswith("exit 77")
    assert read.steps[-2].serve is None


@pytest.mark.parametrize(
    ("name", "right"),
    [("Qwen/Qwen2.5-7B-Instruct", True), ("7B", False), ("a/b/c", False), ("--host/x", False), (None, False)],
)
def test_a_model_has_an_owner_and_a_name(name: str | None, right: bool) -> None:
    assert is_model(name) is right


def test_serving_has_several_names() -> None:
    assert [is_serving(one) for one in ("serve", "Serving", "inference", "training")] == [True, True, True, False]
