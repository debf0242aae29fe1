"""The generated pages say what the code does, and the pages point at things that exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import pytest
from PIL import Image
from PIL.WebPImagePlugin import WebPImageFile
from typer.testing import CliRunner

from bot.cli.access.job_file import job_in, line_of
from bot.cli.command_table import COMMANDS
from bot.cli.lazy import build
from bot.cli.pages import PAGES
from bot.cli.pages.codes import SENT_BY
from bot.cli.pages.markdown import table
from bot.cli.pages.settings import SUBJECTS
from bot.clock import SystemClock
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.document import JobDocument
from bot.rules.policy.policy import Policy
from bot.rules.policy.timing import Timing
from bot.rules.values.reply_code import ReplyCode
from bot.services.plans.job_file import read_job
from bot.settings import known_variables
from ledger.kernel.states import NotificationKind
from providers.registry import REGISTRY
from tests.pictures.__main__ import MAX_BYTES

ROOT = Path(__file__).resolve().parent.parent
README_WORDS = 700
WALK = ROOT / "docs/walk.webp"
WRITTEN = [path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if path.name != "LICENSE"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_agrees_with_the_code(name: str) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"


def test_the_readme_is_short_and_shows_every_step_of_the_set_up() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= README_WORDS
    set_up = text.partition("## Set it up")[2]
    steps = ("make install", "SLACK_BOT_TOKEN", "policy.yml", "db upgrade", "doctor ", "serve\n", "/gpu key add")
    places = [set_up.index(step) for step in steps]
    assert places == sorted(places)
    commands = set(re.findall(r"^ *gpu-shopper ([\w-]+)", text, re.MULTILINE))
    assert commands <= set(COMMANDS)
    assert set(re.findall(r"^ *make ([\w-]+)", text, re.MULTILINE)) <= targets()


def targets() -> set[str]:
    """What the Makefile can make."""
    return set(re.findall(r"^([a-z-]+): ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def test_the_walk_is_small_enough_for_a_readme_and_about_twenty_seconds_long() -> None:
    assert WALK.stat().st_size <= MAX_BYTES
    with Image.open(WALK) as picture:
        assert isinstance(picture, WebPImageFile)
        seconds = 0.0
        for number in range(picture.n_frames):
            picture.seek(number)
            picture.load()
            seconds += picture.info["duration"] / 1000
    assert 15 <= seconds <= 25


def test_the_example_file_names_only_real_settings() -> None:
    names = re.findall(r"^#? ?([A-Z][A-Z_0-9]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert names
    assert set(names) <= {variable.name for variable in known_variables()}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_page_says_to_type_is_understood(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for typed in re.findall(r"^/gpu (.+)$", text, re.MULTILINE):
        line = typed.replace("ssh-ed25519 AAAA…", f"ssh-ed25519 {'A' * 68}").replace("@carol", "<@U0CAROL>")
        assert not isinstance(parse(line), GrammarError), typed
    for typed in re.findall(r"^ *gpu-shopper ([^\n#]+)", text, re.MULTILINE):
        assert typed.split()[0] in COMMANDS, typed


def test_the_job_file_of_the_guide_is_a_job(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/requester.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"^```yaml\n(.+?)^```", guide, re.MULTILINE | re.DOTALL)
    (tmp_path / "job.yaml").write_text(written, encoding="utf-8")
    job = read_job(JobDocument.model_validate(job_in(str(tmp_path / "job.yaml"))), Policy())
    assert (job.gpu.names, job.candidates, job.hours, job.disk_gb) == (
        ("RTX4090", "A6000"),
        ("runpod", "vast"),
        Decimal(6),
        100,
    )
    assert job.clouds_in_order
    assert job.run is not None
    assert "python /workspace/train.py" in job.run
    assert job.mounts == (
        "COPY /workspace/train.py https://example.com/train.py",
        "COPY /workspace/data s3://my-bucket/reranker",
    )


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("clouds/")])
def test_a_cloud_s_first_request_is_the_same_in_slack_and_in_a_terminal(name: str) -> None:
    page = PAGES[name]()
    assert not re.search(r"\bsection \d", page), "headings have no numbers"
    for typed in re.findall(r"^/gpu (.+)$", page, re.MULTILINE):
        found = parse(typed)
        assert isinstance(found, ParsedCommand)
        assert "$" not in typed, "a shell would replace it"
        command, *words = shlex.split(typed)
        assert parse(f"{command} {line_of(words)}") == found
    ends = "`/gpu terminate ID`" in page
    entry = REGISTRY.get(name.removeprefix("clouds/").removesuffix(".md"))
    if entry is not None:
        assert ends is entry.build(entry.config_class(), SystemClock(), None).capabilities.terminate


def test_the_policy_page_has_a_heading_for_each_subject() -> None:
    keys = [item.name for kind in (Policy, Timing) for item in fields(kind)]
    assert [key for key in keys if key in SUBJECTS] == list(SUBJECTS)
    page = PAGES["policy.md"]()
    assert re.findall(r"^### (.+)$", page, re.MULTILINE) == list(SUBJECTS.values())
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == keys


def test_every_notification_says_what_causes_it() -> None:
    rows = re.findall(r"^\| `([a-z._]+)` \| .+ \| (when|by) (.+) \|$", PAGES["notifications.md"](), re.MULTILINE)
    assert [kind for kind, _, _ in rows] == list(NotificationKind)
    assert {kind for kind, how, _ in rows if how == "by"} == set(SENT_BY)


def test_every_code_of_an_answer_has_one_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGES["errors.md"](), re.MULTILINE)
    names = [name for name, meaning in rows if name in set(ReplyCode) and meaning == ReplyCode(name).label]
    assert names == sorted(ReplyCode)
    assert {"approved", "bad_word", "not_an_approver", "reason_needed", "submitted", "private_key"} <= set(names)


def test_the_architecture_page_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:bot|ledger|providers|migrations|tests|docs)/[a-z0-9_/.-]+)`", text))
    assert len(named) > 30
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_the_architecture_page_draws_the_layers_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = [one["layers"] for one in settings["tool"]["importlinter"]["contracts"] if one["id"] == "one-way"]
    drawn = re.search(
        r"^```\n(bot/cli > .+?)\n\n", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert drawn is not None
    without_stage = " > ".join(layers).replace(" | bot.practice", "").replace(".", "/")
    assert " ".join(drawn[1].split()) == without_stage


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), ["docs", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_check_names_what_does_not_match_and_writing_mends_it(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    code, _, err = run("--check", "--folder", str(folder))
    assert code == 1
    assert "policy.md" in err
    assert f"{len(PAGES)} of {len(PAGES)} pages written" in run("--folder", str(folder))[1]
    assert run("--check", "--folder", str(folder))[0] == 0
    (folder / "ids.md").write_text("changed by hand", encoding="utf-8")
    code, _, err = run("--check", "--folder", str(folder))
    assert (code, "ids.md" in err, "policy.md" in err) == (1, True, False)


def test_a_table_escapes_bars() -> None:
    assert table(("a",), [("x|y\nz",)]).splitlines()[-1] == "| x\\|y z |"
