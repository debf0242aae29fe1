"""Narrow a program's job to what the policy lets that program rent."""

from __future__ import annotations

from dataclasses import replace

from bot.rules.jobs.facets.limits import cloud_of_offer
from bot.rules.jobs.job import JobRequest
from bot.rules.policy.consumers import ConsumerPolicy
from bot.rules.values.phrases import hours
from bot.rules.values.reply_code import ReplyCode
from providers.cloud_names import machines_of
from providers.gpus.table import lookup


class NotAllowed(ValueError):
    """Refuse what a program's policy does not allow; `code` is stable, the message is for people."""

    def __init__(self, code: ReplyCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def narrowed(job: JobRequest, limits: ConsumerPolicy, name: str) -> JobRequest:
    """Narrow the job to the limits: what was left open becomes what they allow. Raises `NotAllowed` beyond them."""
    if limits.clouds:
        at = cloud_of_offer(job.offer_id)
        if at and at not in limits.clouds:
            raise NotAllowed(
                ReplyCode.CLOUD_NOT_ALLOWED, f"{name} may rent at {', '.join(limits.clouds)} only, and not at {at}."
            )
        allowed = tuple(one for one in job.candidates or limits.clouds if machines_of(one) in limits.clouds)
        if not allowed:
            raise NotAllowed(ReplyCode.CLOUD_NOT_ALLOWED, f"{name} may rent at {', '.join(limits.clouds)} only.")
        job = replace(job, candidates=allowed)
    if job.makes_volume:
        return job  # The GPUs and the hours are limits of machines.
    if limits.gpus:
        known = tuple(name for gpu in limits.gpus for name in lookup(gpu))
        outside = [gpu for gpu in job.gpu.names if gpu not in known]
        if outside:
            raise NotAllowed(
                ReplyCode.GPU_NOT_ALLOWED, f"{name} may rent {', '.join(known)} only, and not {outside[0]}."
            )
        job = replace(job, gpu=replace(job.gpu, names=job.gpu.names or known))
    if limits.max_hours is not None and job.hours > limits.max_hours:
        most, asked = hours(limits.max_hours), hours(job.hours)
        raise NotAllowed(ReplyCode.TOO_LONG, f"{name} may rent for {most} at most, and asked for {asked}.")
    return job
