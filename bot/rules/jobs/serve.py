"""Decide whether a machine's start-up starts a model server, and with which words."""

from __future__ import annotations

import re

from bot.rules.jobs.job import JobRequest
from bot.rules.values.serving import is_serving
from bot.wire.startup_plan import PlannedServer

#: How long the server may take to its first answer: it downloads the model and loads it.
SERVE_LIMIT_S = 1800
#: The stack that has a server.
STACK = "serve"
#: A model as the Hugging Face Hub names it.
_MODEL = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
MODEL_MISSING = "Say which model is served, such as model=Qwen/Qwen2.5-7B-Instruct."


def asks_for_server(install: str | None, workload: str) -> bool:
    """Whether a job asks that its machine serves a model."""
    return install == STACK and is_serving(workload)


def is_model(name: str | None) -> bool:
    """Whether this is a model that a server can fetch: `org/name`."""
    return name is not None and _MODEL.fullmatch(name) is not None


def model_server(job: JobRequest) -> PlannedServer | None:
    """Return the server that a job's machine starts; None where it starts none."""
    if job.model is None or not is_model(job.model) or not asks_for_server(job.install, job.workload):
        return None
    listens = ("--host", "127.0.0.1", "--port", "{port}", "--tensor-parallel-size", "{gpus}")
    return PlannedServer(("vllm", "serve", job.model, *listens), job.model)
