"""The `/gpu` language: what is understood, what is refused and where the answer points."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.rules.grammar.commands import SUBCOMMANDS
from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse, reference
from bot.rules.grammar.question_words import QUESTION_WORDS
from bot.rules.jobs.facet_table import WORD_OF, WORDS
from bot.rules.jobs.facets.limits import SpotPolicy
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.work_words import WORK_WORDS
from bot.rules.policy.model_profiles import ModelProfile
from bot.rules.policy.policy import Policy
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import GPUS, lookup

A100 = lookup("a100")


def args(words: str, command: str = "provision") -> JobRequest:
    found = parse(f"{command} {words}")
    assert isinstance(found, ParsedCommand), found.message
    assert found.job is not None
    return found.job


def error(line: str, **policy: Any) -> GrammarError:
    found = parse(line, Policy(**policy))
    assert isinstance(found, GrammarError)
    assert found.line[found.position : found.position + len(found.word)] == found.word
    return found


# ── what is understood ───────────────────────────────────────────────────────────────────────────


def test_the_whole_line() -> None:
    found = args('4xA100-80GB 6h max=$50 clouds=vast,runpod spot=no for="fine-tune"')
    assert found == JobRequest(
        gpu=GpuConstraint(("A100-SXM-80GB", "A100-PCIE-80GB"), 4, 4),
        hours=Decimal(6),
        budget_cap_usd=Decimal(50),
        candidates=("vast", "runpod"),
        reason="fine-tune",
    )


@pytest.mark.parametrize(
    "words",
    [
        "2x4090 3h",
        "2xRTX4090 hours=3",
        "2 x 4090 3 hours",
        "2x rtx 4090 180m",
        "gpu=2x4090 3h",
        "gpu=4090 count=2 time=3h",
        "GPU=rtx-4090 gpus=2 duration=3",
        "--gpu=4090 --count=2 --hours=3.0",
        "4090 x2 3hrs",
        "2 GPUs 4090 3h",
        "4090 2gpus 3h",
        "nvidia geforce rtx 4090 x2 2h60m",
    ],
)
def test_one_thing_is_said_in_many_ways(words: str) -> None:
    assert args(words) == JobRequest(GpuConstraint(("RTX4090",), 2, 2), hours=Decimal(3))


@pytest.mark.parametrize(("word", "regions"), [("US", ("US",)), ("eu", ("EU",)), ("DE,PL", ("DE", "PL"))])
def test_a_country_needs_no_key(word: str, regions: tuple[str, ...]) -> None:
    assert args(f"4090 {word} $0.40", "inventory") == args(f"4090 region={','.join(regions)} max=$0.40", "inventory")
    assert error(f"inventory 4090 {word} region=SE").word == "region=SE"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("a100", A100),
        ("4090,3090", ("RTX4090", "RTX3090")),
        ("4090 or a 3090", ("RTX4090", "RTX3090")),
        ("H100 SXM", ("H100-SXM",)),
        ("h100 sxm or 3090 ti", ("H100-SXM", "RTX3090Ti")),
        ("A100 80GB", A100),
        ("rtx pro 6000", lookup("rtxpro6000")),
        ("rtx 6000 ada", ("RTX6000Ada",)),
        ("tesla t4", ("T4",)),
        ("tesla a100", A100),
        ("amd instinct mi300x", ("MI300X",)),
        ("gpu=l40s,l40", ("L40S", "L40")),
        ("h200 h200", ("H200",)),
    ],
)
def test_gpus(words: str, names: tuple[str, ...]) -> None:
    assert set(args(words + " 1h").gpu.names) == set(names)
    assert len(args(words + " 1h").gpu.names) == len(set(names))


@pytest.mark.parametrize("name", list(GPUS))
def test_every_canonical_name_means_itself(name: str) -> None:
    assert args(f"{name} 1h").gpu.names == (name,)
    assert args(f"3x{name} 1h").gpu.count_min == 3


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("memory=40GB+", "memory_gb_min", Decimal(40)),
        ("memory=40GB+", "memory_gb_max", None),
        ("memory&gt;=40", "memory_gb_min", Decimal(40)),
        ("memory&lt;=40", "memory_gb_min", None),
        ("memory≤40", "memory_gb_max", Decimal(40)),
        ("memory=40", "memory_gb_max", Decimal(40)),
        ("vram=40-80GB", "memory_gb_max", Decimal(80)),
        ("80gb+", "memory_gb_min", Decimal(80)),
        ("80 gb", "memory_gb_max", Decimal(80)),
        ("40-80gb", "memory_gb_min", Decimal(40)),
        ("disk=1TB", "disk_gb", 1000),
        ("disk=100", "disk_gb", 100),
        ("max=1,000.50", "budget_cap_usd", Decimal("1000.50")),
        ("$50", "budget_cap_usd", Decimal(50)),
        ("50usd", "budget_cap_usd", Decimal(50)),
        ("$2.50/h", "max_price_usd_h", Decimal("2.50")),
        ("max_price=2.50/hr", "max_price_usd_h", Decimal("2.50")),
        ("vast", "candidates", ("vast",)),
        ("on Vast.ai,runpod", "candidates", ("vast", "runpod")),
        ("cloud=vast,vast", "candidates", ("vast",)),
        ("spot", "spot", SpotPolicy.YES),
        ("on-demand", "spot", SpotPolicy.NO),
        ("spot=either", "spot", SpotPolicy.ANY),
        ("offer=Vast:30406190", "offer_id", "vast:30406190"),
        ("runpod:NVIDIA-L4@EU", "offer_id", "runpod:NVIDIA-L4@EU"),
        ("reliability=0.98", "min_reliability", Decimal("0.98")),
        ("total=160GB", "memory_gb_total_min", Decimal(160)),
        ("total-memory=80+", "memory_gb_total_min", Decimal(80)),
        ("verified=YES", "verified_only", True),
        ("verified=no", "verified_only", False),
        ("cuda=12.4", "min_cuda", Decimal("12.4")),
        ("cuda=12+", "min_cuda", Decimal(12)),
        ("capability=8.9", "min_capability", Decimal("8.9")),
        ("compute=sm_120", "min_capability", Decimal(12)),
        ("available=24h", "min_available_s", 86_400),
        ("availability=1.5d", "min_available_s", 129_600),
        ("available=6", "min_available_s", 21_600),
        ("tokens=1.5m", "tokens", 1_500_000),
        ("count=2-4", "count_max", 4),
        ('"why we need it"', "reason", "why we need it"),
        ("for='it is \"due\"'", "reason", 'it is "due"'),
        ("for=“it’s &lt;!channel&gt; & *Approved by* x”", "reason", "it's <!channel> & *Approved by* x"),
        ('for="a\x00b\u202ec\nd"', "reason", "abc d"),
        ('for="a=b"', "reason", "a=b"),
    ],
)
def test_words(words: str, field: str, value: object) -> None:
    job = args(f"4090 1h {words}")
    assert getattr(job.gpu if hasattr(job.gpu, field) else job, field) == value


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", ParsedCommand("help")),
        ("   ", ParsedCommand("help")),
        ("help", ParsedCommand("help")),
        ("? rent", ParsedCommand("help", target="provision")),
        ("provision", ParsedCommand("provision")),
        ("profile vast.ai", ParsedCommand("profile", target="vast")),
        ("Inventory", ParsedCommand("inventory")),
        ("list", ParsedCommand("list", action="mine")),
        ("LS", ParsedCommand("list", action="mine")),
        ("list team", ParsedCommand("list", action="team")),
        ("history", ParsedCommand("history", action="mine")),
        ("status `4k7m2p`", ParsedCommand("status", target="4k7m2p")),
        ("terminate ses_01hzy3k9qxvbm7wt", ParsedCommand("terminate", target="ses_01hzy3k9qxvbm7wt")),
        ("kill #4k7m2p", ParsedCommand("terminate", target="4k7m2p")),
        ("cancel 4k7m2p", ParsedCommand("cancel", target="4k7m2p")),
        ("key list", ParsedCommand("key", action="list")),
        ("key remove", ParsedCommand("key", action="remove")),
        ("key remove laptop", ParsedCommand("key", action="remove", text="laptop")),
        ("key add `ssh-ed25519 AAA= me@x`", ParsedCommand("key", action="add", text="ssh-ed25519 AAA= me@x")),
        ("inventory 4090", ParsedCommand("inventory", job=JobRequest(GpuConstraint(("RTX4090",)), Decimal(1)))),
        (
            "inventory spot",
            ParsedCommand("inventory", job=JobRequest(GpuConstraint(), Decimal(1), spot=SpotPolicy.YES)),
        ),
    ],
)
def test_commands(line: str, command: ParsedCommand) -> None:
    assert parse(line) == command


# ── what is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "word", "said"),
    [
        ("provison 4090 2h", "provison", "Did you mean provision?"),
        ("inventory max<0.40", "max<0.40", "is not understood; write max="),
        ("provision 1x4090 2w", "2w", "is not a time here; write 90m, 6h or 2d."),
        ("rentt 4090 2h", "rentt", "Did you mean rent? “rentt” is not a command."),
        ("xyzzy", "xyzzy", "is not a command"),
        ("4xA100 2h", "4xA100", "Begin with what to do"),
        ("profile", "", "profile takes one cloud; there are"),
        ("profile vast runpod", "runpod", "profile takes one cloud"),
        ("profile vast,runpod", "vast,runpod", "one cloud at a time"),
        ("profile acme", "acme", "is not a cloud"),
        ("list all", "all", "is not one of mine, team"),
        ("status", "", "needs the id"),
        ("status a b", "b", "one id and nothing after"),
        ("status <@U1>", "<@U1>", "is not an id"),
        ("help foo", "foo", "no help"),
        ("key", "", "add, list or remove"),
        ("key frob", "frob", "add, list and remove"),
        ("key add", "", "public key is missing"),
        ("key list x", "x", "takes no words"),
        ("budget mine", "mine", "budget takes no words after it"),
        ("provision 4091 2h", "4091", "Did you mean RTX4090"),
        ("provision 4xA101 2h", "A101", "Did you mean A10"),
        ("provision gpu=banana 2h", "gpu=banana", "is not a GPU that is known here."),
        ("provision 4090", "", "how long"),
        ("provision 6h", "", "which GPU"),
        ("provision 4090 0h", "0h", "above zero"),
        ("provision 4090 -3h", "-3h", "above zero"),
        ("provision 4090 hours=-3", "hours=-3", "above zero"),
        ("provision 4090 10000h", "10000h", "720 hours"),
        (f"provision 4090 {'9' * 60}h", "9" * 60 + "h", "720 hours"),
        ("provision 4090 hours=1e4", "hours=1e4", "is not a time"),
        ("provision 4090 hours=nan", "hours=nan", "is not a time"),
        ("provision 4090 2h 3h", "3h", "already said"),
        ("provision 2x4090 count=2 2h", "count=2", "already said"),
        ("provision 4090 4 2h", "4", "could be anything"),
        ("provision 4090 1.5 2h", "1.5", "could be anything"),
        ("provision 0x4090 2h", "0x", "At least one"),
        ("provision -2x4090 2h", "-2x", "is not a number of GPUs"),
        ("provision 4-2x4090 2h", "4-2x", "smaller number first"),
        ("provision 17x4090 2h", "17x", "limit of 16"),
        ("provision 4090 2h max=-5", "max=-5", "cannot be negative"),
        ("provision 4090 2h max=$-5", "max=$-5", "cannot be negative"),
        ("provision 4090 2h -$5", "-$5", "cannot be negative"),
        ("provision 4090 2h max=0", "max=0", "above zero"),
        ("provision 4090 2h max=lots", "max=lots", "not an amount"),
        ("provision 4090 2h max=1000001", "max=1000001", "not believed"),
        ("provision memory=big 2h", "memory=big", "not a memory size"),
        ("provision memory=80-40 2h", "memory=80-40", "nothing to choose"),
        ("provision memory=0 2h", "memory=0", "nothing to choose"),
        ("provision 4090 2h disk=0", "disk=0", "not a disk size"),
        ("provision 4090 2h disk=big", "disk=big", "not a disk size"),
        ("provision 4090 2h clouds=vats", "clouds=vats", "Did you mean vast?"),
        ("provision 4090 2h region=U$", "region=U$", "is not a region"),
        ("provision 4090 2h spot=maybe", "spot=maybe", "spot=any"),
        ("provision 4090 2h offer=123", "offer=123", "not the id of an offer"),
        ("provision 4090 2h mars:1", "mars:1", "not the id of an offer"),
        ("provision 4090 2h reliability=200%", "reliability=200%", "not a reliability"),
        ("provision 4090 2h total=much", "total=much", "not a size"),
        ("provision 4090 2h total=0", "total=0", "not a size"),
        ("provision 4090 2h verified=maybe", "verified=maybe", "does not answer verified"),
        ("provision 4090 2h cuda=new", "cuda=new", "not a version"),
        ("provision 4090 2h capability=sm_x", "capability=sm_x", "not a version"),
        ("provision 4090 2h available=0h", "available=0h", "not a time"),
        ("provision 4090 2h available=long", "available=long", "not a time"),
        ("provision 4090 2h reliability=good", "reliability=good", "not a reliability"),
        ("provision 4090 2h tokens=many", "tokens=many", "not a number of tokens"),
        ("provision 4090 2h tokens=0", "tokens=0", "not a number of tokens"),
        ("provision 4090 2h image=;rm", "image=;rm", "name of an image"),
        ("provision 4090 2h colour=red", "colour=red", "is not a known word"),
        ("provision 4090 2h regoin=US", "regoin=US", "Did you mean region?"),
        ("provision 4090 2h image=", "image=", "needs a value"),
        ("provision 4090 2h for", "for", 'write for="fine-tune"'),
        ("provision 4090 2h price<=3", "price<=3", "memory only"),
        ("provision 4090 2h vasst", "vasst", "Did you mean vast?"),
        ("provision 4090 2h spot=yse", "spot=yse", "spot=any. Did you mean yes?"),
        ("provision 4090 2h verified=yse", "verified=yse", "verified=no. Did you mean yes?"),
        ("provision 4090 2h intrruptible", "intrruptible", "Did you mean interruptible?"),
        ("plan model=7B tokns=2B", "tokns=2B", "Did you mean tokens?"),
        ("plan model=7B tokens=2B precison=bf16", "precison=bf16", "Did you mean precision?"),
        ("plan model=7B checkpointing=yse", "checkpointing=yse", "checkpointing=no. Did you mean yes?"),
        ("done abc123 sucess", "sucess", "after the id. Did you mean success?"),
        ("done abc123 success success", "success", "after the id."),
        ("terminate abc123 nwo", "nwo", "asked nothing. Did you mean now?"),
        ("key ad", "ad", "add, list and remove. Did you mean add?"),
        ("delegate lst", "lst", "operator:ada. Did you mean list?"),
        ("provision 4090 2h tuning", "tuning", 'written as for="fine-tune"'),
        ('provision 4090 for="fine tune', '"fine tune', "not closed"),
        ("provision 4090 2h \u202eevil", "evil", "not understood"),
    ],
)
def test_a_bad_word_is_pointed_at(line: str, word: str, said: str) -> None:
    found = error(line)
    assert (found.word, found.code) == (word, "bad_word")
    assert said in found.message
    assert isinstance(parse(found.example), ParsedCommand)
    assert found.caret.splitlines()[1].strip("^ ") == ""


def test_a_long_reason_is_refused_with_its_length() -> None:
    found = error(f'provision 4090 2h for="{"x" * 3000}"')
    assert "3,000 characters; 500 is the most" in found.message
    assert len(found.caret.splitlines()[0]) < 80
    assert "“yyyy" in error("provision 4090 2h " + "y" * 3000).message
    assert len(error("provision 4090 2h " + "y" * 3000).message) < 200


def test_a_private_key_is_refused_and_never_repeated() -> None:
    found = error("key add -----BEGIN OPENSSH PRIVATE KEY----- b3BlbnNzaC1rZXk")
    assert "private key" in found.message
    assert "b3BlbnNzaC1rZXk" not in found.line + found.message + found.caret


def test_the_policys_limits_are_used() -> None:
    assert "limit of 2" in error("provision 4x4090 2h", max_gpus=2).message
    assert "5 is the most" in error("provision 4090 2h for=because", max_reason_chars=5).message


# ── over everything ──────────────────────────────────────────────────────────────────────────────


def test_every_documented_example_parses() -> None:
    for sub in SUBCOMMANDS:
        found = parse(sub.example)
        assert isinstance(found, ParsedCommand)
        assert found.name == sub.name
    known = Policy(presets={"nightly": "8xH100 6h"}, instance_profiles={"moe": ModelProfile("8xRTX3090")})
    for word in WORDS:
        command = ' run="python train.py"' if word.key in ("config", "run-dir", "attempts", "retry-codes") else ""
        command += " attempts=3" if word.key == "retry-codes" else ""
        assert isinstance(parse(f"inventory {word.example}{command}", known), ParsedCommand)
        assert all(WORD_OF[alias] is word for alias in word.aliases)


def test_the_reference_has_a_row_for_every_command_and_word() -> None:
    text = reference()
    assert all(f"`/gpu {sub.usage}`" in text for sub in SUBCOMMANDS)
    assert all(f"| `{word.key}=` |" in text for word in WORDS)


ODDITIES = [
    *["4xA100", "90m", "$50", "2", "x", "4090", "rtx", "ti", "80gb", "vast", "spot", "or", '"', "'", "=", ">=", "1-2x"],
    *["0x", "-", "--", "€5", "nan", "1e99", "\u202e", "<!channel>", "`", "…", "0", "٣", "²", "x2", "$", "a:b", "#"],
]
PIECES = st.sampled_from(
    [
        *(sub.name for sub in SUBCOMMANDS),
        *(word.example for word in WORDS),
        *(f"{word.key}=" for word in WORDS),
        *(word.example for word in WORK_WORDS),
        *(word.example for word in QUESTION_WORDS),
        *ODDITIES,
    ]
)
LINES = st.lists(PIECES | st.text(max_size=12), max_size=8).map(" ".join) | st.text()


@given(line=LINES, start=st.sampled_from(["", "provision ", "plan ", "compare ", "inventory ", "status ", "key "]))
def test_nothing_that_is_typed_breaks_it_and_every_answer_helps(line: str, start: str) -> None:
    found = parse(start + line)
    if isinstance(found, ParsedCommand):
        return
    assert isinstance(parse(found.example), ParsedCommand)
    assert found.line[found.position : found.position + len(found.word)] == found.word
    assert found.message.endswith((".", "?"))
    shown, under = found.caret.split("\n")
    assert under.strip("^ ") == ""
    assert len(under) <= len(shown) + 1


@given(line=LINES)
def test_what_is_understood_is_inside_the_policys_limits(line: str) -> None:
    found = parse("provision " + line)
    if isinstance(found, GrammarError) or found.job is None:
        return
    policy, made = Policy(), found.job
    assert 0 < made.hours <= policy.max_hours_ever
    assert 1 <= made.gpu.count_min <= made.gpu.count_max <= policy.max_gpus
    assert len(made.reason) <= policy.max_reason_chars
    assert made.budget_cap_usd is None or made.budget_cap_usd > 0
    assert set(made.gpu.names) <= set(GPUS)
