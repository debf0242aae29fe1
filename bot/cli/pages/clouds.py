"""Generate docs/clouds (one guide per cloud, from its profile) and docs/capabilities.md (from the adapters)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from types import MappingProxyType

from bot.cli.pages.markdown import code, table, whole_page
from bot.clock import SystemClock
from providers.capabilities import BillingRule, Capabilities, PriceSource
from providers.profiles.model import FOLDER, GOTCHAS, NOTES, SECTIONS
from providers.registry import REGISTRY, ProviderEntry

#: Stands for the section that no profile has: its text comes from the capabilities.
MONITORING = 0
#: A guide's headings in their order, each with the sections of the profile (from 1) that stand under it.
HEADINGS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "How it launches": (1,),
        "Costs, and how billing stops": (5,),
        "Monitoring": (MONITORING,),
        "Spot and interruptions": (4,),
        "Keep a job running": (6,),
        "Storage": (2,),
        "Network": (3,),
        "Troubleshooting": (7,),
        "Values for scripts": (8,),
    }
)
#: What a newcomer sees of a cloud.
_WITHOUT_KEY = {PriceSource.PUBLIC: "offers", PriceSource.LIST_PRICE: "list prices", None: "nothing"}
#: Notes that several profiles link to; `_schema` is for those who write profiles.
SHARED = tuple(name for name in NOTES if not name.startswith("_"))
#: One entry of section 7: its name, then symptom → cause → fix.
_GOTCHA = re.compile(r"^- \*\*(\w+)\*\*(?: ·)? (.+?)\n(?=- \*\*|\n|\Z)", re.MULTILINE | re.DOTALL)
#: A paragraph of a note with the same three parts.
_PROBLEM = re.compile(r"^([^\n→]+→[^→]+→.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_BEGIN = re.compile(r"^### (\d)\. .*\n", re.MULTILINE)


def pages() -> Mapping[str, Callable[[], str]]:
    """Return the pages under docs/clouds: file name → the function that writes it."""
    return {
        "clouds/index.md": index,
        **{f"clouds/{name}.md": partial(guide, entry) for name, entry in REGISTRY.items()},
        **{f"clouds/{name}.md": partial(_note, name) for name in SHARED},
    }


def index() -> str:
    """Return the list of clouds with what each one can do."""
    able = _capabilities()
    rows = [
        (
            f"[{_title(entry)}]({name}.md)",
            ", ".join(code(variable) for variable in entry.required),
            f"{able[name].boot_expected_s / 60:.0f} min",
            "yes" if able[name].spot else "no",
            "yes" if able[name].stop else "no",
            "yes" if able[name].ssh else "no",
            _WITHOUT_KEY[entry.without_key],
        )
        for name, entry in REGISTRY.items()
    ]
    return whole_page(
        "Clouds",
        "A cloud takes part as soon as its key is set. Set one key to start; more clouds mean more offers.",
        table(("cloud", "key", "usually ready in", "spot", "stop and start", "SSH", "shown without a key"), rows),
        "Before any key is set, `gpu-shopper inventory`, `plan` and `compare` read what these clouds show to anybody. "
        "They name the clouds that were read without a key, and the day of list prices. Nothing can be rented then.",
        "`/gpu profile CLOUD` and `gpu-shopper profiles show CLOUD` show the same pages where you work. "
        "[Capabilities](../capabilities.md) lists every difference that the program knows.",
        "Good on every cloud:",
        "\n".join(f"- [{_heading(name)}]({name}.md)" for name in SHARED),
        _contents([*REGISTRY, *SHARED]),
    )


def guide(entry: ProviderEntry) -> str:
    """Return the guide of one cloud."""
    able = _capabilities()[entry.name]
    parts = _sections(entry)
    parts[MONITORING] = _monitoring(able)
    parts[GOTCHAS] = _GOTCHA.sub(_problem, f"{parts[GOTCHAS]}\n").strip()
    body = [text for heading, numbers in HEADINGS.items() for text in (f"## {heading}", *(parts[n] for n in numbers))]
    return whole_page(_title(entry), "## Keys", *_keys(entry), "## First run", *_first_run(entry, able), *body)


def _keys(entry: ProviderEntry) -> list[str]:
    commands = [f"gpu-shopper config set {variable}     # you are prompted for it" for variable in entry.required]
    rest = [variable for variable in entry.fields if variable not in entry.required]
    also = f" Other settings of this cloud: {', '.join(code(name) for name in rest)}." if rest else ""
    needs = re.sub(r"\b[A-Z][A-Z0-9_]+\b", r"`\g<0>`", entry.needs)
    return [
        f"Create the key at <{entry.where}>, and store it where the bot runs. This cloud needs {needs}.",
        "\n".join(("```sh", *commands, "gpu-shopper doctor", "```")),
        f"`doctor` tries the key. Restart `gpu-shopper serve` afterwards.{also}",
    ]


def _first_run(entry: ProviderEntry, able: Capabilities) -> list[str]:
    if able.batch:
        asks = f'/gpu provision gpu=T4 count=2 1h clouds={entry.name} run="nvidia-smi -L" for="first run"'
        then = "It runs as a batch job: no SSH, and its output is on the cloud's page of the run."
    else:
        asks = f'/gpu provision 1x 1h memory=16GB+ clouds={entry.name} max=5 for="first run"'
        then = f"A machine here is usually ready in {able.boot_expected_s / 60:.0f} minutes."
    if able.terminate:
        end = "End it early with `/gpu terminate ID`, and compare the total with the cloud's own bill the next day."
    else:
        end = "The bot can't end it early: it ends by itself, at its timeout, or by hand on that page."
    return [
        f"```sh\ngpu-shopper preflight\ngpu-shopper inventory --provider {entry.name}\n```",
        "`preflight` checks the key and the balance. Then ask in Slack:",
        f"```\n{asks}\n```",
        f"In a terminal, write `gpu-shopper` in place of `/gpu`. {then} {end}",
    ]


def _monitoring(able: Capabilities) -> str:
    """Say what the bot reads from this cloud, and how often a person can compare."""
    checks = "The bot lists the whole account every 30 seconds and compares it with the ledger"
    if able.charges and not able.charges_derived:
        bill = "It also reads the cloud's bill, and corrects the ledger by it."
    else:
        bill = "Programs can't read a bill here: compare `gpu-shopper costs` with the cloud's console yourself."
    balance = (
        "`gpu-shopper preflight` shows the balance."
        if able.balance
        else "This cloud shows no balance to programs: look at its console."
    )
    said = f"{checks}. {bill} {balance} `/gpu status ID` shows one session, and `/gpu list` all of yours."
    if not able.ssh:
        return said
    if able.ends_itself:
        alone = "If the bot can't end it, it ends itself within 10 minutes after the approved end."
    else:
        alone = (
            "This cloud has no way for a machine to end itself, and a shutdown from inside doesn't end the bill. If "
            "the bot is down at the approved end, end the machine in the cloud's console."
        )
    return f"{said} A machine with an [agent](../node.md) also reports its load. {alone}"


def _sections(entry: ProviderEntry) -> dict[int, str]:
    """Map the number of a profile's section to its text."""
    text = entry.profile.read_text(encoding="utf-8")
    pieces = _BEGIN.split(text)[1:]
    found = {int(number): body.strip() for number, body in zip(pieces[::2], pieces[1::2], strict=True)}
    if set(found) != set(range(1, len(SECTIONS) + 1)):
        raise ValueError(f"{entry.profile.name} lacks a section")
    return found


def _problem(found: re.Match[str]) -> str:
    """Turn one entry `symptom → cause → fix` into a heading with what to do below it."""
    symptom, *rest = (" ".join(part.split()) for part in found[2].split("→"))
    said = " **Fix:** ".join(_sentence(part) for part in rest)
    return f"### {_sentence(symptom)[:-1]}\n\n{said} ({found[1]})\n\n"


def _in_sentences(found: re.Match[str]) -> str:
    symptom, cause, fix = (" ".join(part.split()) for part in found[1].split("→", 2))
    return f"**{symptom}.** {_sentence(cause)} **Fix:** {_sentence(fix)}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."


def _note(name: str) -> str:
    """Return a note that several profiles share."""
    body = (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n")[2]
    return whole_page(_heading(name), _PROBLEM.sub(_in_sentences, body).strip())


def _title(entry: ProviderEntry) -> str:
    found = re.search(r"^# (.+)$", entry.profile.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else entry.name


def _heading(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _contents(names: list[str]) -> str:
    return "\n".join(("```{toctree}", ":hidden:", "", *names, "```"))


def _capabilities() -> dict[str, Capabilities]:
    return {
        name: entry.build(entry.config_class(), SystemClock(), None).capabilities for name, entry in REGISTRY.items()
    }


def page() -> str:
    """Return the table of everything that the adapters say about their clouds."""
    able = _capabilities()
    rows = [
        (code(item.name), *(_text(getattr(able[name], item.name)) for name in able))
        for item in fields(Capabilities)
        if item.name not in ("billing", "rate_limits", "source")
    ]
    billing = [
        (code(f"billing.{item.name}"), *(_text(getattr(able[name].billing, item.name)) for name in able))
        for item in fields(BillingRule)
    ]
    limits = ("`rate_limits`", *(_limits(able[n]) for n in able))
    return whole_page(
        "Capabilities of the clouds",
        "What each cloud can do, for people who change the code. Code outside an adapter reads these values and never "
        "the name of a cloud. Times are seconds. `Capabilities` and `BillingRule` in `providers/capabilities.py` "
        "explain each name. [Clouds](clouds/index.md) has a guide to each cloud.",
        table(("capability", *able), [*rows, *billing, limits]),
    )


def _text(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _limits(able: Capabilities) -> str:
    """Describe the rate limits of each group of endpoints."""
    return "; ".join(f"{group}: {pace}" for group, pace in able.rate_limits.items() if not pace.shares) or "none"
