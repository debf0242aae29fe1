"""Read the words of a job one by one into a `JobRequest`, from lines, files, REST bodies and the form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from typing import Final

from bot.rules.grammar.commands import BY_NAME, Subcommand
from bot.rules.grammar.sizing_words import refused
from bot.rules.jobs.facet import Fields
from bot.rules.jobs.facet_table import FACETS, WORD_OF, WORDS
from bot.rules.jobs.facets.gpus import read_gpus, unknown_gpu
from bot.rules.jobs.facets.limits import SPOT_WORDS, cloud_words, read_clouds
from bot.rules.jobs.facets.profile import machine_of
from bot.rules.jobs.facets.work import SHARED, run_word, unsaid, work_word
from bot.rules.jobs.job import JobRequest
from bot.rules.jobs.serve import MODEL_MISSING, asks_for_server, is_model
from bot.rules.jobs.words import DURATION
from bot.rules.jobs.work_words import WORK_KEYS
from bot.rules.market.sizing_question import SERVED
from bot.rules.policy.policy import Policy
from bot.rules.sizing.media_models import media_model
from bot.rules.sizing.model_shapes import model
from bot.rules.values import secret_text
from bot.rules.values.bad_word import BadWord, near, show
from bot.rules.values.text import UnclosedQuote, WordToken, tokens
from providers.gpus.constraint import GpuConstraint
from providers.gpus.table import lookup

#: Without a time, offers are compared by the cost of one hour.
LOOK_HOURS: Final = Decimal(1)

#: Why a set of machines needs its hours.
ALONE_ESTIMATED: Final = (
    "How long a run takes on several machines can't be estimated here. Say for how long, such as 6h."
)

#: Words that carry nothing, and makers' words that only mean something together with the next word.
_FILLERS = frozenset(["gpu", "gpus", "with", "and", "or", "a", "an", "of", "in", "on", "from", "please"])
#: Words that say everything without a value.
_ALONE: Final[Mapping[str, Fields]] = {
    **{word: {"spot": SPOT_WORDS[word]} for word in ("spot", "interruptible", "on-demand", "ondemand")},
    "retry": {"wait": True},
}
_BRANDS = frozenset(["rtx", "gtx", "geforce", "nvidia", "tesla", "quadro", "amd", "instinct", "radeon", "pro", "titan"])
_GPU_FIELDS = frozenset(GpuConstraint.__dataclass_fields__)
#: Words that people write before their value: `below $16/h`, `until 20:00`.
_MOMENTS = frozenset(["below", "under", "until", "at"])
_PRESET = re.compile(r"[A-Za-z0-9][\w-]{0,39}", re.ASCII)
_COUNTED = re.compile(r"(-?\d+(?:-\d+)?\s*x)\s*(.+)", re.IGNORECASE)
_KEYED = re.compile(r"-{0,2}([A-Za-z][\w-]*?)(=|>=|<=)(.*)", re.DOTALL)
_NUMBER = re.compile(r"\d+")
_UNITS = re.compile(r"h|hrs?|hours?|m|mins?|minutes?|d|days?|gb|g|gpus?|x.*", re.IGNORECASE)
#: The size of a model, such as 7B or 30B-A3B; no GPU is written like that.
_MODEL_SIZE = re.compile(r"\d+(?:\.\d+)?b(?:-a\d+(?:\.\d+)?b)?", re.IGNORECASE)
#: Countries as two capital letters, such as US or DE,PL; small letters would be words of a sentence.
_COUNTRIES = re.compile(r"[A-Z]{2}(?:,[A-Z]{2})*|us|eu")
#: What a bare word looks like → the key that reads it.
_BARE = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (DURATION, "hours"),
        (r"-?\$.*/h(?:r|our)?", "price"),
        (r"-?\$.*|.*\d(?:usd|\$)", "max"),
        (r"\d{1,4}(?:gb|g)\+?|\d{1,4}(?:gb|g)?-\d{1,4}gb?", "memory"),
        (r"-?\d+(?:-\d+)?\s*(?:x|gpus?)|x\d+", "count"),
        (r"[a-z]+:\S+", "offer"),
    )
)


@dataclass(slots=True)
class Draft:
    """Collect a job while its words are read; `said` holds the fields said so far, of `JobRequest` and its GPUs."""

    policy: Policy
    said: Fields = field(default_factory=dict)
    #: The GPU words so far, since `H100 SXM` are two words for one GPU.
    _gpu_text: str = ""

    def read(self, word: WordToken) -> None:
        """Read one word more. Raises `BadWord`."""
        for name, value in self.look(word).items():
            if name in self.said and name not in ("names", "work", "wait"):
                raise BadWord(f"{show(word.raw)} repeats what was already said. Keep one of the two.")
            self.said[name] = value

    def look(self, word: WordToken) -> Fields:
        """Return the fields that one word sets. Raises `BadWord`."""
        keyed = _KEYED.fullmatch(word.value)
        if keyed is None:
            return self._bare(word)
        key, operator, value = keyed[1].lower().replace("_", "-"), keyed[2], keyed[3].strip()
        work = self.said.get("work", ())
        found = WORD_OF.get(key) or WORD_OF.get(key.replace("-", "_"))
        if found is None and operator == "=" and run_word(key):
            return {"work": work_word(key, value, work)}
        if found is None:
            known = ", ".join(each.key for each in WORDS)
            hint = near(key, (*WORD_OF, *WORK_KEYS))
            raise BadWord(f"{show(keyed[1])} is not a known word. Words are {known}.{hint}")
        if not value:
            raise BadWord(f"{found.key}= needs a value; write {found.example}.")
        if operator != "=" and found.key == "memory":
            value = operator + value
        elif operator != "=":
            raise BadWord(f"{operator} works with memory only; write {found.example}.")
        if wrong := secret_text.problem(secret_text.field_of(found.key), value):
            raise BadWord(wrong)
        read = found.read(value, self.policy)
        if "names" in read:
            read["names"] = self._with(read["names"])
        return {**read, "work": work_word(found.key, value, work)} if found.key in SHARED else read

    def _bare(self, word: WordToken) -> Fields:
        text, lowered, so_far = word.value, word.value.lower(), self._gpu_text
        if word.quoted and " " in text:
            return WORD_OF["for"].read(text, self.policy)
        for pattern, key in _BARE:
            if pattern.fullmatch(lowered):
                return WORD_OF[key].read(lowered.strip("xgpus ") if key == "count" else text, self.policy)
        if lowered in _ALONE:
            return {**_ALONE[lowered]}
        clouds = cloud_words()
        if all(part in clouds for part in lowered.split(",")):
            return read_clouds(text, self.policy)
        together = lookup(f"{so_far} {text}") if so_far else ()
        if together:
            self._gpu_text = f"{so_far} {text}"
            return {"names": self._with(together, instead_of=lookup(so_far))}
        if lowered in _BRANDS:
            self._gpu_text = text if lookup(so_far) else f"{so_far} {text}".strip()
            return {}
        if lowered in _FILLERS:
            return {}
        if _MODEL_SIZE.fullmatch(text) or model(text) or media_model(text):
            return self.look(WordToken(f"model={text}", word.raw, word.position))
        if _COUNTRIES.fullmatch(text):
            return WORD_OF["region"].read(text.upper(), self.policy)
        if all(lookup(part) for part in text.split(",")):
            self._gpu_text = text
            return {"names": self._with(read_gpus(text, self.policy)["names"])}
        raise BadWord(_unknown(text))

    def _with(self, names: tuple[str, ...], instead_of: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Add GPUs to those said so far, each once."""
        before = [name for name in self.said.get("names", ()) if name not in instead_of]
        return tuple(dict.fromkeys((*before, *names)))

    def fill(self) -> None:
        """Take from the preset whatever no other word says, and let each facet complete its part. Raises `BadWord`."""
        self._fill_preset()
        for facet in FACETS:
            for complete in facet.complete:
                self.said = complete(self.said, self.policy)

    def _fill_preset(self) -> None:
        name = self.said.pop("preset", None)
        if name is None:
            return
        if wrong := preset_problem(self.policy.presets[name]):
            raise BadWord(f"The preset {name} can't be used. {wrong}")
        preset = read_words(self.policy.presets[name], self.policy)
        own = {word.partition("=")[0] for word in self.said.get("work", ())}
        work = tuple(word for word in preset.said.pop("work", ()) if word.partition("=")[0] not in own)
        if work or own:
            self.said["work"] = (*self.said.get("work", ()), *work)
        self.said = {**preset.said, **self.said}

    def missing(self, sub: Subcommand) -> Iterator[tuple[str, str]]:
        """Yield what `sub` still needs, as `(word that would say it, sentence)`."""
        work = () if "hours" in self.said else self.said.get("work", ())
        if sub.name == "plan" and self.said.keys().isdisjoint(("hours", "work", "budget_cap_usd")):
            runs = "Say what runs, such as model=7B tokens=2B, or for how long, such as 6h."
            yield "hours", f"{runs} budget=$500 alone asks which model that trains."
        if wrong := refused(self.said, plans=sub.name == "plan"):
            yield SERVED, wrong
        looks = sub.name != "plan" and not sub.needs_hours and not work
        if self.said.get("nodes", 1) > 1 and "hours" not in self.said and not looks:
            yield "hours", ALONE_ESTIMATED
        if not sub.needs_hours:
            return
        serves = asks_for_server(self.said.get("install"), self.said.get("workload", ""))
        if serves and not is_model(self.said.get("model")):
            yield "model", MODEL_MISSING
        if "wait_until" in self.said and self.said.keys().isdisjoint(("wait", "start_at")):
            yield "until", "until= says how long to wait, so say for what: below=$16/h, retry or at=20:00."
        if not work and self.said.keys().isdisjoint(("names", "memory_gb_min", "memory_gb_max", "offer_id")):
            yield "gpu", "Say which GPU: a name such as 4090, or memory=40GB+."
        lacking = unsaid(work)
        if "hours" not in self.said and (lacking or not work):
            yield "hours", f"Say for how long, such as 6h or 90m. {lacking}".strip()

    def request(self, sub: Subcommand) -> JobRequest:
        """Make the request, with defaults where nothing was said; the hours of a described run are found later.

        A time that a person fixed is what is rented, even where the work is described. Without such a time the plan
        chooses the number of GPUs for the work.
        """
        said = {"hours": LOOK_HOURS, **self.said}
        if sub.name != "plan" and ("hours" in self.said or not sub.needs_hours):
            said.pop("work", None)
        if said.get("work") and "count_min" not in said:
            said["count_max"] = self.policy.max_gpus
        gpu = GpuConstraint(**{name: said.pop(name) for name in _GPU_FIELDS & said.keys()})
        job = JobRequest(gpu=gpu, **said)
        return replace(job, disk_gb=self.policy.disk_gb(job.workload, said.get("disk_gb"), job.model))


def read_words(text: str, policy: Policy) -> Draft:
    """Read the words of a job. Raises `BadWord`, or `UnclosedQuote`."""
    draft = Draft(policy)
    for word in joined(tokens(text)):
        draft.read(word)
    return draft


def check_profiles(policy: Policy) -> Policy:
    """Return this policy, or raise ValueError with a sentence that names the profile and its wrong value."""
    for name, profile in policy.instance_profiles.items():
        try:
            machine_of(profile, policy)
        except BadWord as error:
            raise ValueError(f"The policy is not usable: instance_profiles.{name}: {error}") from error
    return policy


def secret_problem(line: str, otherwise: str) -> str:
    """Say which word of a line has a secret in it, or that `otherwise` has one; "" where there is none."""
    try:
        words = tokens(line)
    except UnclosedQuote:
        words = []
    for word in words:
        key, _, value = word.value.partition("=")
        read = WORD_OF.get(key.lower().lstrip("-"))
        if read and (wrong := secret_text.problem(secret_text.field_of(read.key), value)):
            return wrong
    return secret_text.problem(otherwise, line) if secret_text.has_secret(line) else ""


def preset_problem(text: str) -> str:
    """Say which word of a preset has a secret in it; "" where none has."""
    return secret_problem(text, "It")


def listed_presets(presets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return each preset's name with its words, or with why nobody can use it."""
    return [(name, secret_text.UNUSABLE if preset_problem(text) else text) for name, text in presets.items()]


def check_presets(policy: Policy) -> Policy:
    """Return this policy, or raise ValueError with a sentence that names the preset and its wrong word.

    A preset with a secret in it may be older than that rule, so it is refused only when somebody uses it.
    """
    for name, text in policy.presets.items():
        if not _PRESET.fullmatch(name):
            raise ValueError(
                f"The policy is not usable: presets: `{name[:40]}` is not a name; use letters, digits, - and _."
            )
        if preset_problem(text):
            continue
        try:
            said = read_words(text, policy).said
        except (BadWord, UnclosedQuote) as error:
            raise ValueError(f"The policy is not usable: presets.{name}: {error}") from error
        if not said or "preset" in said:
            wrong = "names another preset" if said else "says nothing"
            raise ValueError(f"The policy is not usable: presets.{name} {wrong}; write words such as 8xH100 6h.")
    return policy


def everything(policy: Policy) -> JobRequest:
    """Ask for any GPU for an hour: what an inventory shows where nobody says a word."""
    return Draft(policy).request(BY_NAME["inventory"])


def joined(words: list[WordToken]) -> Iterator[WordToken]:
    """Join `6 hours` and `2 x` into one word, then split `4xA100` into `4x` and `A100`."""
    place = 0
    while place < len(words):
        word = words[place]
        unit = words[place + 1] if place + 1 < len(words) else WordToken("", "", 0)
        place += 1
        if _NUMBER.fullmatch(word.raw) and not lookup(word.raw) and _UNITS.fullmatch(unit.raw):
            gap = " " * (unit.position - word.position - len(word.raw))
            word = WordToken(word.value + unit.value, word.raw + gap + unit.raw, word.position)
            place += 1
        if word.raw.lower() in _MOMENTS and unit.raw and "=" not in unit.raw:
            word = pair(word.raw.lower(), unit.value, word.position)
            place += 1
        counted = None if word.quoted else _COUNTED.fullmatch(word.raw)
        if counted is None:
            yield word
        else:
            yield WordToken(counted[1], counted[1], word.position)
            yield WordToken(counted[2], counted[2], word.position + counted.start(2))


def pair(key: str, value: str, place: int = 0) -> WordToken:
    """Join a key and its value, whatever is in it, to one word."""
    return WordToken(f"{key}={value}", f"{key}={value}", place, quoted=True)


def _unknown(text: str) -> str:
    lowered = text.lower()
    if lowered in WORD_OF:
        return f"{show(text)} needs a value; write {WORD_OF[lowered].example}."
    if re.fullmatch(r"-?\d{1,3}|-?\d+\.\d+", text):
        return f"{show(text)} could be anything; write GPUs as 4xA100, hours as 6h and money as $50."
    if (compared := re.fullmatch(r"([a-z-]+)[<>]=?.*", lowered)) and compared[1] in WORD_OF:
        return f"{show(text)} is not understood; write {WORD_OF[compared[1]].example}."
    if re.fullmatch(r"\d+(?:\.\d+)?(?:w|mo|y|weeks?|months?|years?)", lowered):
        return f"{show(text)} is not a time here; write 90m, 6h or 2d."
    if re.search(r"\d", text):
        return unknown_gpu(text)
    others = get_close_matches(lowered[:40], (*WORD_OF, *cloud_words(), *SPOT_WORDS), n=1)
    hint = f" Did you mean {others[0]}?" if others else ' A reason is written as for="fine-tune".'
    return f"{show(text)} is not understood.{hint}"
