"""Profiles: each thing that the lint finds, and what a program reads from one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from providers.capabilities import BillingRule, Capabilities
from providers.profiles.model import SECTIONS, BillingStop, CloudKind, ProfileError, lint, lint_note, load, names
from providers.profiles.sections import Detach, contradictions
from providers.registry import REGISTRY
from tests.support.clock import SteppedClock

RUNPOD = REGISTRY["runpod"].connect({}, SteppedClock()).capabilities
TEXT = REGISTRY["runpod"].profile.read_text(encoding="utf-8").replace("](gotchas", "](../gotchas")


@pytest.fixture
def complaints(tmp_path: Path) -> Callable[..., list[str]]:
    """Lint a changed copy of a good profile: `old` must be there, and becomes `new`."""
    (tmp_path / "gotchas_universal.md").write_text("# G\n\n## U1\n\n## U9\n")
    (tmp_path / "clouds").mkdir()
    path = tmp_path / "clouds" / "runpod.md"

    def check(old: str = "", new: str = "", able: Capabilities | None = RUNPOD) -> list[str]:
        assert old in TEXT
        path.write_text(TEXT.replace(old, new) if old else TEXT, encoding="utf-8")
        return lint(path, able)

    return check


def test_a_good_profile_has_no_complaint(complaints: Callable[..., list[str]]) -> None:
    assert complaints() == []
    assert complaints(able=None) == []


FRONT = TEXT.split("---\n")[1]
TEARDOWN = TEXT[TEXT.index("### 5.") : TEXT.index("### 6.")]
GOTCHAS = TEXT[TEXT.index("- **RP1**") : TEXT.index("On every cloud")]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (f"---\n{FRONT}---\n", "", "front matter between two lines --- is missing"),
        (FRONT, "a: [\n", "is no YAML"),
        (FRONT, "- a list\n", "the front matter: "),
        ("kind: ssh-rental", "kind: bare-metal", "kind: Input should be 'ssh-rental'"),
        ("meter_stop_verb: terminate", "meter_stop_verb: kill", "meter_stop_verb: Input should be"),
        ("detach_primitive: tmux", "detach_primitive: screen", "detach_primitive: Input should be"),
        ("shared_fs: true", "shared_fs: 1", "shared_fs: Input should be a valid boolean"),
        ("shared_fs: true\n", "", "the key shared_fs is missing"),
        ("shared_fs: true\n", "shared_fs: true\ncolour: red\n", "unknown key colour; there are platform, kind"),
        ("platform: runpod", "platform: pod", "platform says pod, the file is called runpod.md"),
        ("### 6. DAEMON TOOL", "**daemon tool**", "section 6. DAEMON TOOL is missing"),
        ("### 6. DAEMON TOOL", "### 6. DEMON TOOL", "DEMON TOOL is not a section"),
        ("### 6. DAEMON TOOL", "### 6. NETWORK", "a section is there twice"),
        ("### 6. DAEMON TOOL", "### 9. DAEMON TOOL", "must be numbered 1 to 8"),
        (GOTCHAS, "- **RP1** a → b → c\n", "section 7 has 1 gotchas"),
        ("**RP2**", "**RP-2**", "'RP-2' is not the id of a gotcha"),
        ("**RP2**", "**RP1**", "the id RP1 is used twice"),
        (" → write to `/workspace`, copy results out before terminate", "", "RP1 must read: symptom → root cause"),
        ("`SCRATCH=/root/data`", "scratch", "section 8 does not say SCRATCH"),
        ("`SCRATCH=/root/data`", "`SCRATCH=/x` `TURBO=1`", "section 8 sets TURBO, which no script reads"),
        ("`SCRATCH=/root/data`", "`SCRATCH=`", "section 8 needs a path for SCRATCH"),
        ("`SCRATCH=/root/data`", "`SCRATCH=/a` `SCRATCH=/b`", "section 8 sets SCRATCH twice"),
        ('`CRED_FILE=""`', "`CRED_FILE=my file`", "sets CRED_FILE=my file, which is no absolute path"),
        ("`DETACH=tmux`", "`DETACH=screen`", "section 8 sets DETACH=screen; there are tmux, sbatch"),
        ("`DURABLE_DIR=/workspace`", "`DURABLE_DIR=/root/x`", "is on Container disk, which survives nothing"),
        ("| Tier | Path |", "| Path | Tier |", "section 2 needs a survival matrix with the columns Tier | Path"),
        (
            "| Container disk | `/` | no,",
            "| Container disk | `/` | maybe,",
            "Container disk: what survives begins with",
        ),
        (
            "| Container disk | `/` | no,",
            "| Container disk | `/` | there is no stop,",
            "that there is no stop; the adapter",
        ),
        ("| Container disk | `/` |", "| `/` |", "a row of the survival matrix has 4 columns"),
        ("| yes | yes, until deleted itself |", "| yes | no |", "section 2 does not say what survives the end"),
        ("meter_stop_irreversible: true", "meter_stop_irreversible: false", "is False, section 2 says what the end"),
        ("`DETACH=tmux`", "`DETACH=nohup`", "section 8 has DETACH=nohup, detach_primitive says tmux"),
        ("../gotchas_universal.md#u1", "../nowhere.md", "the link ../nowhere.md leads nowhere"),
        ("../gotchas_universal.md#u1", "../gotchas_universal.md#u77", "a heading that gotchas_universal.md does not"),
        ("../gotchas_universal.md#u1", "#nowhere", "the link #nowhere leads to a heading that runpod.md"),
        ("meter_stop_verb: terminate", "meter_stop_verb: destroy", "is destroy, the adapter says terminate"),
        (TEARDOWN, "### 5. TEARDOWN / BILLING\n\nStop it. Per second.\n\n", "must first say in bold what stops"),
        ("**Terminate (`DELETE`) ends", "**Stop ends", "must first say in bold what stops the cost: terminate"),
        ("Per second, GPU", "GPU", "does not say that the adapter counts by the second"),
        ("spot_available: false", "spot_available: true", "spot_available is True, the adapter says False"),
    ],
)
def test_the_lint_names_what_is_wrong(complaints: Callable[..., list[str]], old: str, new: str, says: str) -> None:
    found = complaints(old, new)
    assert any(says in one for one in found), found
    assert all(one.startswith("runpod.md: ") for one in found)


def test_links_to_the_web_and_to_own_headings_are_no_complaint(complaints: Callable[..., list[str]]) -> None:
    assert complaints("../gotchas_universal.md#u1", "https://docs.runpod.io/x#y") == []
    assert complaints("../gotchas_universal.md#u1", "#6-daemon-tool") == []


def test_a_wrong_order_is_shown(complaints: Callable[..., list[str]]) -> None:
    found = complaints(TEARDOWN + "### 6. DAEMON TOOL", "### 6. DAEMON TOOL\n\n" + TEARDOWN)
    assert any("wrong order" in one and "DAEMON TOOL, TEARDOWN / BILLING" in one for one in found)


def test_section_five_is_held_to_the_capabilities(complaints: Callable[..., list[str]]) -> None:
    none = complaints(able=replace(RUNPOD, stop=False))
    assert "runpod.md: section 5 must say that there is no stop; the adapter has none" in none
    assert "runpod.md: section 2 says what a stop does to Container disk; the adapter has none" in none
    assert complaints(TEARDOWN, "### 5. TEARDOWN / BILLING\n\n**Terminate.** Per second.\n\n") == [
        "runpod.md: section 5 does not say what a stop does; the adapter has one"
    ]
    stopping = complaints(
        "meter_stop_verb: terminate", "meter_stop_verb: stop", replace(RUNPOD, meter_stop_verb="stop")
    )
    assert any("stop does not stop the cost" in one for one in stopping)
    slow = complaints(able=replace(RUNPOD, billing=BillingRule(quantum_s=60)))
    assert any("counts by the minute" in one for one in slow) is ("minute" not in TEARDOWN)
    batch = complaints(able=replace(RUNPOD, batch=True))
    assert any("batch cloud" in one for one in batch)


def test_what_a_program_reads() -> None:
    found = load("runpod")
    assert (found.front.kind, found.front.meter_stop_verb) == (CloudKind.SSH_RENTAL, BillingStop.TERMINATE)
    assert found.billing_stop == "Terminate stops all billing. It can't be undone."
    places = found.overrides
    assert (places.durable_dir, places.cred_file, places.detach) == ("/workspace", "", Detach.TMUX)
    assert places.environment["HF_HOME"] == "/workspace/hf"
    assert places.environment["RUN_ONE"] == "/workspace/run_one.sh"
    assert "RUN_ONE" not in load("vast").overrides.environment  # Nothing survives there.
    assert "CRED_FILE" not in places.environment
    assert places.directories == ("/root/data", "/workspace/hf")
    assert (found.stopped, found.restarted) == ("A stop keeps /workspace and wipes /.", "A restart wipes /.")
    assert found.over == "Everything in / and /workspace will be deleted."
    assert found.stop_keeps_data
    assert len(found.sections) == len(SECTIONS)
    assert found.gotchas[0].id == "RP1"
    assert found.gotchas[0].fix.startswith("write to `/workspace`")


def test_each_cloud_says_what_its_stop_and_its_end_do_to_the_data() -> None:
    told = {name: (load(name).stopped, load(name).over) for name in names()}
    assert told["lambda"][0] == told["kaggle"][0] == ""
    assert told["tensordock"][0] == "A stop keeps / and /home/user."
    assert all(over.endswith(" will be deleted.") for _, over in told.values())
    assert load("kaggle").billing_stop.startswith("No call stops the billing")
    assert load("vast").restarted == ""


def test_a_durable_place_must_be_somewhere() -> None:
    found = list(contradictions((), {"DURABLE_DIR": "/data"}, None))
    assert found == ["DURABLE_DIR=/data is on no tier of section 2"]


def test_a_profile_that_is_not_there_is_explained() -> None:
    with pytest.raises(ProfileError, match=r"no profile of 'acme'; there are .*runpod"):
        load("acme")
    with pytest.raises(ProfileError):
        load("../profiles/runpod")
    assert set(names()) == set(REGISTRY)


def test_a_note_is_held_to_its_links(tmp_path: Path) -> None:
    note = tmp_path / "note.md"
    assert lint_note(note) == ["note.md is missing"]
    note.write_text("[x](gone.md)")
    assert lint_note(note) == ["note.md: the link gone.md leads nowhere"]
