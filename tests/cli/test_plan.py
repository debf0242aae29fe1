"""`gpu-shopper plan`: one plan out of clouds that really answer, and the same numbers at every door."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from matplotlib.figure import Figure
from typer.testing import CliRunner

from bot.api.routes.market import plan_out
from bot.cli.access.job_file import job_in
from bot.cli.commands.in_process_market import plan_of
from bot.cli.commands.plan import write
from bot.cli.lazy import build
from bot.cli.terminal.terminal_tables import print_report
from bot.practice.reader import all_text
from bot.rules.grammar.parser import ParsedCommand, parse
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.stored import job_of
from bot.rules.market.outlook import percent
from bot.rules.policy.policy import Policy
from bot.rules.values.phrases import usd
from bot.services.plans import planner
from bot.services.plans.chart import chart, front
from bot.services.plans.deliverables import (
    CostEstimate,
    InstanceManifest,
    PlanHead,
    cost_estimate,
    gpu_plan,
    instance_manifest,
    plan_head,
)
from bot.services.plans.tables import plan_table
from bot.services.runtime.commands import Reply
from bot.slack.blocks.plan import plan as plan_message
from ledger.engine.db import Database
from tests.cli.test_commands import elsewhere
from tests.cli.test_inventory import clouds
from tests.slack.conftest import Stage, staged
from tests.support.clock import SteppedClock

__all__ = ["clouds", "elsewhere"]

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
POLICY = Policy()
WORDS = "model=1B tokens=300M seq=2048 batch=512 precision=bf16 goal=24h"
ROW = r"\d+ +\d+x .+? +[a-z]+ +\$[\d,.]+ +(\d+ h( \d+ min)?|\d+ min) +\$[\d,.]+"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
async def stage(sqlite_db: Database, clock: SteppedClock) -> AsyncIterator[Stage]:
    async with staged(sqlite_db, clock) as built:
        yield built


def asked(words: str) -> JobRequest:
    found = parse(f"plan {words}")
    assert isinstance(found, ParsedCommand), found.message
    assert found.job is not None
    return found.job


async def planned(stage: Stage, words: str = WORDS) -> planner.Planned:
    """A plan of these words."""
    ctx = stage.ctx
    return await planner.plan(ctx.catalog, ctx.clock, asked(words), ctx.policy)


def head_of(page: str) -> PlanHead:
    """The head of a `gpu_plan.md`, as a program reads it."""
    before, head, _ = page.split("---\n", 2)
    assert before == ""
    return PlanHead.model_validate(yaml.safe_load(head))


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text(encoding="utf-8"))


async def run(*arguments: str) -> tuple[int, str, str]:
    result = await asyncio.to_thread(CliRunner().invoke, build(), ["plan", *arguments])
    return result.exit_code, result.stdout, result.stderr


# ── one plan, every door ─────────────────────────────────────────────────────────────────────────


async def test_every_door_shows_the_same_numbers(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = await planned(stage)
    assert made.best is not None
    await stage.command("alice", f"/gpu plan {WORDS}")
    slack = all_text(stage.ws.ephemerals("alice")[-1])
    write(plan_out(made, POLICY, with_chart=True).model_dump(mode="json"), tmp_path)
    print_report(plan_table(made))
    terminal = capsys.readouterr().out
    page = (tmp_path / "gpu_plan.md").read_text(encoding="utf-8")
    document = json.loads((tmp_path / "cost_estimate.json").read_text(encoding="utf-8"))
    manifest = json.loads((tmp_path / "instance_manifest.json").read_text(encoding="utf-8"))
    head = head_of(page)
    for option, told, line in zip(made.ranked.options, document["options"], head.options, strict=True):
        costs = option.estimate
        seen = costs.outlook
        assert seen is not None
        assert seen.done is not None
        chances = f"Chances: {percent(seen.done)} done by the goal."
        ranges = f"{usd(seen.usd_low)}–{usd(seen.usd_high)}"
        for shown in (usd(costs.expected_usd), ranges, chances, option.offer.id):
            assert shown in slack
            assert shown in terminal
            assert shown in page
        assert option.why in page
        assert option.why in terminal
        total = told["total_usd"]
        assert f"Never more than {usd(costs.worst_usd)}." in page
        assert Decimal(told["outlook"]["done"]) == seen.done
        assert Decimal(told["outlook"]["goodput"]) == seen.goodput
        assert Decimal(total["best"]) == costs.best_usd == line.best_usd
        assert Decimal(total["expected"]) == costs.expected_usd == line.expected_usd
        assert Decimal(total["worst"]) == costs.worst_usd == line.worst_usd
        assert sum(Decimal(part["expected_usd"]) for part in told["components"]) == costs.expected_usd
        assert Decimal(told["hours"]["expected"]) == costs.hours == line.hours
        assert told["hours_known"] is True
        assert Decimal(told["tokens_per_s"]["low"]) < Decimal(told["tokens_per_s"]["expected"])
    assert head.recommended == manifest["resources"]["offer_id"] == made.best.offer.id
    assert Decimal(manifest["lifecycle"]["total_cap_usd"]) == made.best.estimate.worst_usd
    assert (tmp_path / "gpu_plan.png").read_bytes().startswith(PNG)


async def test_the_files_keep_to_their_schemas_and_come_back_as_they_were(stage: Stage) -> None:
    for words in (WORDS, "4090 6h", "model=1B 4090", f"{WORDS} price=$0.001"):
        made = await planned(stage, words)
        estimate, manifest = cost_estimate(made), instance_manifest(made, POLICY)
        jsonschema.validate(json.loads(estimate.model_dump_json()), schema("cost_estimate.json"))
        jsonschema.validate(json.loads(manifest.model_dump_json()), schema("instance_manifest.json"))
        jsonschema.validate(plan_head(made).model_dump(mode="json"), schema("gpu_plan.json"))
        assert CostEstimate.model_validate_json(estimate.model_dump_json()) == estimate
        assert InstanceManifest.model_validate_json(manifest.model_dump_json()) == manifest
        assert head_of(gpu_plan(made)) == plan_head(made)


@pytest.mark.parametrize("words", [WORDS, "4090 6h", "model=1B 4090"])
async def test_the_hint_of_a_plan_can_be_typed_and_asks_for_its_first_offer(stage: Stage, words: str) -> None:
    made = await planned(stage, words)
    assert made.best is not None
    (hint,) = re.findall(r"`/gpu (provision [^`]*)`", all_text_of(made))
    found = parse(hint)
    assert isinstance(found, ParsedCommand)
    assert found.job is not None
    assert found.job.offer_id == made.best.offer.id


async def test_a_missing_number_falls_back_to_hours_and_says_so(stage: Stage) -> None:
    made = await planned(stage, "model=1B 4090")
    assert made.best is not None
    assert made.best.estimate.hours == 1
    (told,) = made.unknown
    assert told.startswith("How many tokens")
    document = cost_estimate(made)
    assert not document.options[0].hours_known
    assert told in gpu_plan(made)
    assert "1 h (guess)" in gpu_plan(made)
    assert told in all_text_of(made)


def all_text_of(made: planner.Planned) -> str:
    return json.dumps(plan_message(made, "/gpu").payload(), ensure_ascii=False)


async def test_a_closed_market_says_what_would_open_it_at_every_door(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = await planned(stage, f"{WORDS} price=$0.001")
    assert made.best is None
    (opening,) = (one for one in made.relaxations if one.word == "price")
    write(plan_out(made, POLICY, with_chart=True).model_dump(mode="json"), tmp_path)
    print_report(plan_table(made))
    assert opening.sentence in (tmp_path / "gpu_plan.md").read_text(encoding="utf-8")
    assert opening.sentence in capsys.readouterr().out
    assert opening.instead.removeprefix("price=") in all_text_of(made)
    assert instance_manifest(made, POLICY).resources is None
    again = await planned(stage, f"{WORDS} {opening.instead.replace('/h', '')}")
    assert again.ranked.answered == opening.opens


# ── asking for a described run ───────────────────────────────────────────────────────────────────


async def test_a_described_run_is_rented_for_the_time_that_it_may_take(stage: Stage) -> None:
    await planned(stage, "model=1B tokens=30M seq=2048 batch=64")
    await stage.command("alice", "/gpu provision model=1B tokens=30M seq=2048 batch=64")
    (request,) = (await stage.w.books()).requests
    job = job_of(request.job)
    assert job.work == ("model=1B", "tokens=30M", "seq=2048", "batch=64")
    made = await planned(stage, "model=1B tokens=30M seq=2048 batch=64")
    assert made.best is not None
    worst = made.best.estimate.worst_hours
    assert worst is not None
    assert worst <= job.hours < worst + Decimal("0.25")
    options = (await stage.w.books()).options
    assert options
    assert all(one.worst_usd >= one.price_usd_h * job.hours for one in options)


async def test_a_run_that_fits_nowhere_or_whose_time_nobody_knows_is_not_asked_for(stage: Stage) -> None:
    await stage.command("alice", "/gpu provision 1x4090 model=13B tokens=30M")
    told = all_text(stage.ws.ephemerals("alice")[-1])
    assert "No offer fits this run now. With " in told
    assert not (await stage.w.books()).requests
    ctx = stage.ctx
    wanted = replace(asked("model=1B tokens=1B"), work=("model=1B",))
    unknown = await planner.rented_hours(ctx.catalog, ctx.clock, wanted, ctx.policy)
    assert isinstance(unknown, Reply)
    assert unknown.sentence.startswith("Say for how long, such as 6h. How many tokens")


# ── the command ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("clouds")
async def test_a_file_is_planned_and_its_files_are_written(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: 1B\ntokens: 300M\nseq: 2048\nprecision: bf16\ncheckpointing: no\nclouds: [vast, runpod]\nmax:\n"
    )
    code, out, err = await run(str(job), "--out", str(tmp_path / "plan"), "--dry-run")
    assert code == 0, err
    assert "Plan for model=1B tokens=300M seq=2048 precision=bf16 checkpointing=no" in out
    assert out.splitlines()[1].split() == ["#", "GPU", "cloud", "total", "time", "$/h"]
    names = {path.name for path in (tmp_path / "plan").iterdir()}
    assert names == {"gpu_plan.md", "gpu_plan.png", "cost_estimate.json", "instance_manifest.json"}
    code, out, _ = await run("model=1B", "tokens=300M", "--json")
    assert code == 0
    jsonschema.validate(json.loads(out), schema("cost_estimate.json"))
    code, out, _ = await run("model=1B", "tokens=300M", "price=$0.001")
    assert (code, "No offer fits now." in out) == (1, True)


@pytest.mark.usefixtures("clouds")
async def test_a_plan_fits_80_columns_and_its_last_line_requests_the_first_offer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = await run("model=7B", "tokens=200M")
    assert code == 0, err
    table = out.splitlines()[1:7]
    assert table[0].split() == ["#", "GPU", "cloud", "total", "time", "$/h"]
    assert all(len(line) <= 80 for line in out.splitlines() if "`" not in line)
    # Each offer is one line, and its time is said as people say it: no hundredths of an hour.
    assert [bool(re.fullmatch(ROW, line)) for line in table[1:]] == [True] * 5, table
    (hint,) = re.findall(r"Request #1: `gpu-shopper (provision [^`]*)`", " ".join(out.split()))
    found = parse(hint)
    assert isinstance(found, ParsedCommand)
    assert found.job is not None
    assert found.job.work == ("model=7B", "tokens=200M")
    code, out, _ = await run("4090", "2h", "--columns", "offer,total")
    assert out.splitlines()[1].split() == ["offer", "total"]
    assert re.search(r"Request #1: `gpu-shopper provision offer=\S+ 2h`", " ".join(out.split()))
    assert (await run("4090", "2h", "--columns", "ofer"))[2].endswith("Did you mean offer?\n")


def test_one_file_is_a_job_for_every_command(tmp_path: Path) -> None:
    file, line = (
        tmp_path / "job.yaml",
        "plan model=1B tokens=300M gpu=4090,3090 2-4x clouds=vast,runpod max=$50 disk=1TB",
    )
    words = "{model: 1B, tokens: 300M, gpu: ['4090', 3090], count: 2-4, clouds: [vast, runpod], max: $50, disk: 1TB}"
    machine = "{gpu: {name: ['4090', 3090], count: 2-4}, disk: 1TB}"
    fields = f"{{work: {{model: 1B}}, tokens: 300M, resources: {machine}, candidates: [vast, runpod], budget: 50}}"
    for text in (words, fields):
        file.write_text(text)
        found = parse(line)
        assert isinstance(found, ParsedCommand), found.message
        assert found.job is not None
        # `candidates` of a file are an order of preference; `clouds` are not.
        assert plan_of(job_in(str(file)), POLICY) == replace(found.job, clouds_in_order=text == fields)


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        (
            "hours: 1\nresources: {gpus: 4}\n",
            ("job.yaml",),
            "job.yaml, line 2: resources.gpus is no key of a job. Did you mean resources.gpu?",
        ),
        ("\nresource: {gpu: 4090}\n", ("job.yaml",), "line 2: resource is no key of a job. Did you mean resources?"),
        ("bugdet: $50\n", ("job.yaml",), "job.yaml, line 1: bugdet is no key of a job. Did you mean budget?"),
        ("resources:\n  count: 2\n", ("job.yaml",), "line 2: resources.count is no key of a job. Did you mean reso"),
        ("resources: {hours: 2}\n", ("job.yaml",), "resources.hours is no key of a job. Did you mean hours?"),
        ("resources: {gpu: {model: a}}\n", ("job.yaml",), "gpu.model is no key of a job. Did you mean work.model?"),
        ("work:\n  modle: 7B\n", ("job.yaml",), "line 2: work.modle is no key of a job. Did you mean work.model?"),
        ("file_mounts: {/a: {sorce: b}}\n", ("job.yaml",), "file_mounts.sorce is no key of a job. Did you mean file_"),
        ("resources: {zebra: 1}\n", ("job.yaml",), "resources.zebra is no key of a job. The keys there are gpu, disk."),
        ("zebra: 1\n", ("job.yaml",), "The keys there are words, resources, nodes, candidates,"),
        (None, ("none.yaml",), "There is no file none.yaml."),
        (None, (".yaml/a.yaml",), "There is no file .yaml/a.yaml."),
        ("hours: 2\n[1, 2", ("job.yaml",), "job.yaml, line 2, cannot be read"),
        ("- a\n", ("job.yaml",), "Its schema is docs/schemas/job.json"),
        ("model: 7Q!\n", ("job.yaml",), "is not a model"),
        ("model: 7Q\n", ("job.yaml",), "is not a model size; write model=7B"),
        (None, ("modle=7B",), "Did you mean model?"),
        (None, ('model=7B" x="',), '“7B" x="” is not a model; write model=7B.'),
    ],
)
async def test_a_bad_job_is_explained(text: str | None, arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "job.yaml").write_text(text)
    code, out, err = await run(*arguments)
    assert (code, out) == (2, "")
    assert says in " ".join(err.split())
    assert "Traceback" not in err


# ── the chart ────────────────────────────────────────────────────────────────────────────────────


def test_the_front_is_what_nothing_beats_in_both() -> None:
    assert front([(2, 5), (1, 9), (3, 6), (4, 1), (1, 9), (2, 7)]) == [(1, 9), (2, 5), (4, 1)]
    assert front([]) == []


async def test_the_chart_is_a_picture_with_one_mark_per_option(stage: Stage) -> None:
    picture = chart(await planned(stage, f"{WORDS} spot=any"))
    assert picture.startswith(PNG)
    width, height = (int.from_bytes(picture[place : place + 4], "big") for place in (16, 20))
    assert (width, height) == (1584, 1672)
    assert chart(await planned(stage, f"{WORDS} price=$0.001")) != picture


async def test_no_name_in_the_chart_covers_another(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Any] = []
    # The picture alone does not say where its texts are, so they are read from the figure before it is written.
    written = Figure.savefig

    def read(figure: Figure, *arguments: Any, **named: Any) -> None:
        figure.draw_without_rendering()
        texts = [one for axes in figure.axes for one in axes.texts]
        boxes.append(([one.get_text() for one in texts], [one.get_window_extent() for one in texts]))
        boxes[-1] += ([axes.get_xlabel() for axes in figure.axes], figure)
        written(figure, *arguments, **named)

    monkeypatch.setattr(Figure, "savefig", read)
    chart(await planned(stage, f"{WORDS} spot=any"))
    chart(await planned(stage, "4090 6h spot=any"))
    for names, extents, *_ in boxes:
        assert len(names) > 3
        assert not [1 for n, one in enumerate(extents) for other in extents[:n] if one.overlaps(other)], names
    (described, _, units, curves), (totals, _, money, _) = boxes
    assert all(name.startswith("#") for name in described)
    assert all(re.fullmatch(r"\$\d+\.\d\d( to \$\d+\.\d\d)?", said) for said in totals)
    assert units == ["expected time (hours)", "time from the launch (hours)", "total cost (US dollars)"]
    assert [one.startswith("total cost (US dollars)") for one in money] == [True]
    above, done, paid = curves.axes
    assert above.get_ylabel() == "total cost (US dollars):\nmean, bar from 10 % to 90 % of runs"
    assert done.get_ylabel() == "chance to be done by then (%)"
    assert paid.get_ylabel() == "chance to cost no more (%)"
    for panel in (done, paid):
        assert len(panel.lines) == 3
        for line in panel.lines:
            values, chances = line.get_data()
            assert list(values) == sorted(values)
            assert (chances[0], chances[-1]) == (1, 99)
    (legend,) = curves.legends
    assert [text.get_text()[:3] for text in legend.get_texts()] == ["#1 ", "#2 ", "#3 "]


@pytest.mark.slow
def test_what_is_heavy_is_loaded_on_first_use() -> None:
    code = (
        "import sys, bot.cli.lazy; bot.cli.lazy.build()\n"
        "def loaded(*names): return {name.partition('.')[0] for name in sys.modules} & set(names)\n"
        "print(loaded('matplotlib', 'numpy', 'pydantic', 'sqlalchemy'))\n"
        "import bot.cli.commands.plan, bot.cli.local.serve\n"
        "print(loaded('alembic', 'asyncssh', 'boto3', 'botocore', 'huggingface_hub', 'keyring', 'mako', 'matplotlib', "
        "'mcp', 'pandas', 'polars', 'pyarrow'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\nset()\n"
