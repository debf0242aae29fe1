"""The ledger stores a job as JSON and knows nothing of its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache

from bot.rules.jobs.job import JobRequest
from providers.gpus.constraint import GpuConstraint
from tests.architecture.test_budgets import name_of, parsed, python_files

#: What the ledger reads out of a job in SQL: a pass over the whole fleet needs this one number of each.
READ_IN_SQL = {"ledger/queries/overspend.py": ['Request.job["hours"]']}


@cache
def ledger() -> Mapping[str, ast.Module]:
    return {name: parsed(path) for path in python_files() if (name := name_of(path)).startswith("ledger/")}


def names_of_its_own() -> set[str]:
    """Every column, field and property that a class of the ledger has."""
    kinds = [node for tree in ledger().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    inside = [node for kind in kinds for node in kind.body]
    columns = {
        node.target.id for node in inside if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return columns | {node.name for node in inside if isinstance(node, ast.FunctionDef)}


def names_of_a_job() -> set[str]:
    """Every field and property of a job."""
    of_a_job = {one.name for kind in (JobRequest, GpuConstraint) for one in fields(kind)}
    values = [item for kind in JobRequest.__mro__ for item in vars(kind).items()]
    return of_a_job | {name for name, value in values if isinstance(value, property)}


def reads_of_a_job(tree: ast.Module) -> Iterator[str]:
    """Every attribute and item of what is called a job, but for `read`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and getattr(node, "attr", "") != "read":
            of = node.value
            if (of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")) == "job":
                yield ast.unparse(node).replace("'", '"')


def test_the_ledger_names_no_field_of_a_job() -> None:
    of_a_job = names_of_a_job() - names_of_its_own()
    assert {"volume_session", "retry_codes", "may_wait"} <= of_a_job
    named = []
    for name, tree in ledger().items():
        # What is called is a function of somebody else, such as `asyncio.run`.
        called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        every = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) not in called]
        named += [f"{name}:{node.lineno} {node.attr}" for node in every if node.attr in of_a_job]
    assert named == []


def test_the_ledger_reads_no_job() -> None:
    assert len(ledger()) > 50
    found = {name: reads for name, tree in ledger().items() if (reads := list(reads_of_a_job(tree)))}
    assert found == READ_IN_SQL


def test_reads_of_a_job_are_noticed() -> None:
    text = "one.job.checkpoint\njob.queue\nRequest.job['hours']\njob.read(f)\nrow.job\njobs[key]\nlog(job)"
    assert list(reads_of_a_job(ast.parse(text))) == ["one.job.checkpoint", "job.queue", 'Request.job["hours"]']
