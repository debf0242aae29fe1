"""Make arguments from the schemas of the OpenAPI document: plausible ones, values at a limit, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Any

from tests.slack.hostile import TRICKS

Schema = Mapping[str, Any]


class Mood(StrEnum):
    """Name how the arguments of one call are chosen."""

    PLAUSIBLE = "plausible"
    EDGE = "edge"
    HOSTILE = "hostile"


#: How often each mood is drawn, and how often a value is hostile in each of them.
MOODS: Mapping[Mood, int] = {Mood.PLAUSIBLE: 45, Mood.EDGE: 20, Mood.HOSTILE: 35}
HOSTILE_SHARE: Mapping[Mood, float] = {Mood.PLAUSIBLE: 0.0, Mood.EDGE: 0.03, Mood.HOSTILE: 0.3}
#: What each field takes; a schema says the type, and not that a GPU has a name. A list of values to choose from.
PLAUSIBLE: Mapping[str, Sequence[Any]] = {
    "gpu": ["4090", "RTX4090", "A100", {"name": "4090", "count": 1}, {"name": ["4090", "A100"], "memory": "24GB+"}],
    "name": ["4090", "atlas", ["4090", "3090"]],
    "count": ["1", 1, "1-2", "2+"],
    "memory": ["24GB+", "24-80GB", 24],
    "min_vram": ["24", "24GB+"],
    "disk": ["50GB", 50, "1TB"],
    "hours": [1, "2h", "90m", 0.5, "13h"],
    "words": ["4090 1h", "1x4090 2h max=$5", {"model": "7B", "tokens": "1B"}],
    "candidates": [["vast"], ["runpod", "vast"], []],
    "provider": ["vast", "runpod"],
    "regions": [["US"], ["EU", "US"]],
    "region": ["US", "EU"],
    "spot": ["no", "yes", "any", False],
    "budget": ["$50", 20, "1"],
    "max_price": ["$2.50", 1, "0.8"],
    "reliability": ["0.9", "95%"],
    "total": ["48GB"],
    "total_memory": ["24GB", 48],
    "cuda": ["12.4", 12],
    "capability": ["8.9", "sm_89"],
    "available": ["24h", "3d"],
    "offer": ["vast:1"],
    "image": ["pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"],
    "run": ["python train.py"],
    "file_mounts": [{"/workspace/data": "s3://bucket/data"}],
    "checkpoint": ["s3://bucket/checkpoints"],
    "work": [{"model": "7B", "tokens": "2B", "seq": 2048}, {}],
    "workload": ["training"],
    "url": ["http://127.0.0.1:9/hook", "http://127.0.0.1:9/hook?key=1", "https://127.0.0.1:9/"],
    "topics": [[], ["session"], ["request", "session"], ["budget"]],
    "public_key": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl me@laptop"],
    "skill": ["trainer"],
    "action": ["train"],
    "amount_usd": ["0.01", "1.5"],
    "timestamp": ["2026-03-02T09:00:00Z"],
    "since": ["2026-03-02T09:00:00Z"],
    "cloud": ["vast", "runpod", "lambda"],
    "storage": ["destroy", "preserve"],
    "period": ["daily", "total", "monthly", "hourly"],
    "limit": [1, 2, 50, 100],
    "scope": ["global", "consumer:hermes-nine", "label:test"],
    "limit_usd": ["500", "0.5", None],
    "owner": ["operator:ada", "operator:ben", "U0BOB"],
    "delegate": ["UBOB", "operator:ben"],
    "until": ["2026-03-10"],
    "tokens_s": ["9000"],
}
#: Values that are wrong for nearly every field, or that a careless program breaks at.
HOSTILE: Sequence[Any] = (
    *TRICKS,
    None,
    True,
    False,
    0,
    -1,
    1e308,
    -1e-300,
    10**40,
    -(10**40),
    [],
    {},
    [[[[]]]],
    {"": ""},
    {"__proto__": {"admin": True}},
    "",
    "\x00",
    "a\x00b",
    "\udfff",
    "٣",
    "１２h",
    "1e5",
    "1e999999999",
    "Infinity",
    "NaN",
    "-0",
    "0x10",
    "1_000",
    "9" * 60,
    "9" * 5000,
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "2026-02-30",
    "2026-03-02T09:00:00.123456789Z",
    "'; DROP TABLE requests; --",
    '" OR 1=1 --',
    "%",
    "_",
    "../../../../etc/passwd",
    "{{7*7}}${7*7}#{7*7}",
    "{0.__class__}%s%n",
    "http://[::1",
    "http://169.254.169.254/latest/meta-data",
    "http://0x7f.1:9/",
    "http://127.0.0.1:99999/",
    "file:///etc/passwd",
    "http://user:password@127.0.0.1:9/\r\nX: y",
    "ssh-ed25519 AAAA",
    "-----BEGIN OPENSSH PRIVATE KEY-----",
    "4090 " * 300,
    "max=$" + "1" * 400,
    "gpu=gpu=gpu",
    "operator:ada",
    "admin",
    "x" * 4001,
    "é" * 300,
)


class Arguments:
    """Make values for the schemas of one document. `ids`: everything that is somebody's, the other program's too."""

    def __init__(self, rng: Random, document: Mapping[str, Any]) -> None:
        self._rng = rng
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]
        self.ids: Sequence[str] = ()

    def mood(self) -> Mood:
        """Draw how the next call's arguments are chosen."""
        return self._rng.choices(list(MOODS), list(MOODS.values()))[0]

    def hostile(self) -> Any:
        """A value that no field expects, or an id of somebody."""
        if self.ids and self._rng.random() < 0.3:
            return self._rng.choice(self.ids)
        return self._rng.choice(HOSTILE)

    def value(self, schema: Schema, mood: Mood, name: str = "") -> Any:
        """A value for one schema, which the field `name` has."""
        if self._rng.random() < HOSTILE_SHARE[mood]:
            return self.hostile()
        if name in PLAUSIBLE and self._rng.random() < (0.85 if mood is Mood.PLAUSIBLE else 0.4):
            return self._rng.choice(PLAUSIBLE[name])
        schema = self._resolved(schema)
        for known in (schema.get("examples"), schema.get("enum"), [schema["const"]] if "const" in schema else None):
            if known and self._rng.random() < 0.6:
                return self._rng.choice(known)
        make = getattr(self, f"_{schema.get('type', 'string')}")
        return make(schema, mood)

    def _resolved(self, schema: Schema) -> Schema:
        """Follow references, and choose one of several alternatives."""
        while "$ref" in schema or "anyOf" in schema:
            if "$ref" in schema:
                schema = self._schemas[schema["$ref"].rpartition("/")[2]]
            else:
                schema = self._rng.choice(schema["anyOf"])
        return schema

    def _object(self, schema: Schema, mood: Mood) -> Any:
        named = schema.get("properties", {})
        required = schema.get("required", ())
        share = 0.18 if len(named) > 8 else 0.5
        made = {
            name: self.value(one, mood, name)
            for name, one in named.items()
            if name in required or self._rng.random() < share
        }
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping):
            made |= {self._string({}, mood): self.value(more, mood) for _ in range(self._rng.randrange(3))}
        if mood is Mood.HOSTILE and self._rng.random() < 0.1:
            made["unknown"] = self.hostile()
        if mood is Mood.HOSTILE and made and self._rng.random() < 0.1:
            made.pop(self._rng.choice(list(made)))
        return made

    def _array(self, schema: Schema, mood: Mood) -> Any:
        most = schema.get("maxItems", 3)
        length = self._rng.choice((0, most, most + 1)) if mood is Mood.EDGE else self._rng.randrange(min(most, 3) + 1)
        return [self.value(schema.get("items", {}), mood) for _ in range(length)]

    def _string(self, schema: Schema, mood: Mood) -> Any:
        least, most = schema.get("minLength", 0), schema.get("maxLength", 60)
        length = self._rng.randrange(min(most, 12) + 1)
        if mood is Mood.EDGE:
            length = self._rng.choice((least, max(least - 1, 0), most, most + 1))
        return "".join(self._rng.choices("abcdefghij0123456789 -_.:/=", k=length))

    def _integer(self, schema: Schema, mood: Mood) -> Any:
        least, most = schema.get("minimum", -5), schema.get("maximum", 2**40)
        if mood is Mood.EDGE:
            return self._rng.choice((least, least - 1, most, most + 1, 0, 2**31, 2**63, -(2**63) - 1))
        return self._rng.randint(int(least), min(int(most), int(least) + 1000))

    def _number(self, schema: Schema, mood: Mood) -> Any:
        return self._rng.choice((self._integer(schema, mood), self._rng.random() * 100, 0.1 + 0.2))

    def _boolean(self, schema: Schema, mood: Mood) -> Any:
        return self._rng.random() < 0.5

    def _null(self, schema: Schema, mood: Mood) -> Any:
        return None
