"""Read the words about who reaches a machine, by which ports, and which secrets its job gets."""

from __future__ import annotations

from typing import Any

from bot.rules.access.scopes import BadHolder, known_person
from bot.rules.grammar.bad_word import BadWord
from bot.rules.policy import job_bounds
from bot.rules.policy.policy import Policy
from bot.rules.values.secret_names import names_problem
from ledger.kernel.ports import Port


def read_ports(text: str, _policy: Policy) -> dict[str, Any]:
    """Read `8888/http,6006`: ports on the machine, tcp where nothing else is said. Raises `BadWord`."""
    try:
        ports = tuple(map(Port.read, text.split(",")))
    except ValueError:
        raise BadWord(f"“{text[:40]}” has no ports from 1 to 65535; write ports=8888/http,6006.") from None
    if wrong := job_bounds.ports(ports):
        raise BadWord(wrong.sentence)
    return {"ports": tuple(map(str, ports))}


def read_secrets(text: str, _policy: Policy) -> dict[str, Any]:
    """Read `HF_TOKEN,WANDB_API_KEY`: names of the requester's secrets, never a value. Raises `BadWord`."""
    names = tuple(part.strip() for part in text.split(","))
    if wrong := names_problem(names):
        raise BadWord(wrong)
    return {"secrets": names}


def read_share(text: str, policy: Policy) -> dict[str, Any]:
    """Read `@carol,U012AB3CD`: people, each once; a bare name is one that the policy links. Raises `BadWord`."""
    people: dict[str, None] = {}
    for part in text.split(","):
        try:
            people[known_person(part, policy.same_person).ref] = None
        except BadHolder:
            said = f"“{part.strip()[:40]}” is nobody known here; mention them (share=@carol) or name operator:ada."
            raise BadWord(said) from None
    if len(people) > job_bounds.MOST_SHARED:
        raise BadWord(f"A machine is shared with {job_bounds.MOST_SHARED} people at most.")
    return {"share": tuple(people)}
