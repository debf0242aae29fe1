"""Read a job document with the `/gpu` language, including its mounted files and SSH key.

The language itself has no words for those two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import ValidationError

from bot.rules.grammar.parser import GrammarError, ParsedCommand, parse
from bot.rules.jobs.document import JobDocument, pairs
from bot.rules.jobs.facets.limits import CandidatesOrder
from bot.rules.jobs.facets.mounts import FileMount
from bot.rules.jobs.job import JobRequest
from bot.rules.market.sizing_question import SizingQuestion
from bot.rules.policy.policy import Policy
from bot.rules.values import secret_text
from bot.rules.values.mounts import BadMount, MountMode, read_mounts
from bot.rules.values.reply_code import ReplyCode
from bot.services.access import ssh_keys


def completed(document: JobDocument, defaults: Mapping[str, str]) -> JobDocument:
    """Return the document with defaults where it gives no value. Raises `BadJob` for a wrong default.

    A job in words gets no defaults.
    """
    if not defaults or document.words is not None:
        return document
    try:
        return JobDocument.model_validate({**defaults, **document.model_dump(exclude_unset=True)})
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][0])
        raise BadJob(
            ReplyCode.BAD_DEFAULT, field, f"The policy's default for {field} is not valid for this field."
        ) from error


class BadJob(ValueError):
    """A job that cannot be requested: a stable `code`, the wrong `field`, and the sentence for people."""

    def __init__(self, code: ReplyCode, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.field = field


def read_job(document: JobDocument, policy: Policy, command: str = "provision") -> JobRequest:
    """Return the request that a document describes, read by the language of `/gpu`. Raises `BadJob`."""
    return _job(document, _parsed(document, policy, command))


def read_plan(document: JobDocument, policy: Policy) -> JobRequest | SizingQuestion:
    """Return the job of a plan, or the budget for which the plan chooses a model. Raises `BadJob`."""
    parsed = _parsed(document, policy, "plan")
    return parsed.sizing or _job(document, parsed)


def _parsed(document: JobDocument, policy: Policy, command: str) -> ParsedCommand:
    named = list(pairs(document))
    parsed = parse(f"{command} {document.words or ''}", policy, [(word, value) for _, word, value in named])
    if isinstance(parsed, GrammarError):
        field = named[parsed.pair - 1][0] if parsed.pair else ""
        raise BadJob(parsed.code, field or ("words" if document.words else ""), parsed.message)
    return parsed


def _job(document: JobDocument, parsed: ParsedCommand) -> JobRequest:
    if parsed.job is None:
        raise BadJob(ReplyCode.BAD_WORD, "", "Say which GPU and for how long, or what runs.")
    try:
        mounts = read_mounts({path: _said(one) for path, one in document.file_mounts.items()})
    except BadMount as error:
        raise BadJob(ReplyCode.BAD_MOUNT, "file_mounts", str(error)) from error
    listed = document.candidates and document.candidates_order is CandidatesOrder.LISTED
    in_order = bool(listed) and len(parsed.job.candidates) > 1
    key = _public_key(document.ssh_public_key)
    lines = tuple(one.line for one in mounts)
    if wrong := next(filter(None, (secret_text.problem("file_mounts", one) for one in lines)), ""):
        raise BadJob(ReplyCode.SECRET_IN_TEXT, "file_mounts", wrong)
    return replace(parsed.job, mounts=lines, public_key=key, clouds_in_order=in_order)


def _said(one: str | FileMount) -> tuple[str, MountMode | None]:
    """Return source and mode of a mount; the short form, a source alone, is a copy."""
    return (one, MountMode.COPY) if isinstance(one, str) else (one.source, one.mode)


def _public_key(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        line, _ = ssh_keys.normalise(text)
    except ssh_keys.KeyRefused as refused:
        raise BadJob(refused.code, "ssh_public_key", str(refused)) from refused
    return line
