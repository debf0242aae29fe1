"""Check a job from any source, with the same sentences in every client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from bot.rules.jobs.facet import JobFacts
from bot.rules.jobs.facet_table import FACETS
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.job_bounds import BoundsVerdict
from bot.rules.policy.policy import Policy
from bot.rules.values import secret_text
from bot.rules.values.reply_code import ReplyCode
from providers.capabilities import Capabilities

#: Fields that people write under another name. A reason is checked as every reason is.
_WRITTEN = {
    "mounts": "file_mounts",
    "work": "work",
    "run_dir": "run-dir=",
    "reason": "",
    "offer_id": "offer=",
    "start_at": "at=",
    "wait_until": "until=",
    "candidates": "clouds=",
    "regions": "region=",
    "public_key": "ssh_public_key",
}


def facts_of(job: JobRequest, policy: Policy, able: Mapping[str, Capabilities], *, agent_reaches: bool) -> JobFacts:
    """Return what a job is checked against; `able` are all clouds that are set up, those of volumes among them."""
    clouds = {name: capabilities for name, capabilities in able.items() if capabilities.volume_gb is None}
    named = tuple(name for name in job.candidates if name in clouds)
    return JobFacts(
        policy=policy,
        clouds=clouds,
        named=named,
        agent_runs=any(clouds[name].has_agent(own_image=job.image is not None) for name in named),
        agent_reaches=agent_reaches,
        commands=job.queue or tuple(filter(None, [job.run])),
        shares_queue=bool(job.queue),
        model=job.model,
    )


def check(job: JobRequest, facts: JobFacts) -> BoundsVerdict | None:
    """Return the first thing that is wrong with a job, or None."""
    return next((wrong for facet in FACETS if (wrong := facet.check(job, facts)) is not None), None)


def check_secrets(job: JobRequest) -> BoundsVerdict | None:
    """Say which field of a job has a secret in it; None where none has."""
    for name, text in _texts(job):
        if wrong := secret_text.problem(name, text):
            return BoundsVerdict(ReplyCode.SECRET_IN_TEXT, wrong)
    return None


def _texts(job: JobRequest) -> Iterator[tuple[str, str]]:
    """Yield every text that somebody wrote, with the name of its field."""
    for field in fields(job):
        value, name = getattr(job, field.name), _WRITTEN.get(field.name, f"{field.name}=")
        for text in value if isinstance(value, tuple) else [value]:
            if name and isinstance(text, str):
                yield name, text
