"""Describe this API as OpenAPI, for programs and for the tests that call it with generated values."""

from __future__ import annotations

from typing import Any

from bot.agent.api.commands import MOST_WORDS
from bot.agent.api.logs import MOST_LINES

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}
_STATE = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "argv": {"type": "array", "items": _TEXT},
        "state": {"enum": ["running", "paused", "done", "failed", "lost"]},
        "exit_code": {"type": ["integer", "null"]},
        "started_at": _TEXT,
        "ended_at": {"type": ["string", "null"]},
        "problem": _TEXT,
    },
}
_COMMAND = {
    "type": "object",
    "required": ["id", "command"],
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"},
        "command": {"enum": ["start", "pause", "resume", "save", "stop"]},
        "argv": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_WORDS},
        "env": {"type": "object", "additionalProperties": _TEXT},
        "cwd": {"type": "string", "description": "A folder inside the workspace."},
        "job": {"type": "boolean", "description": "Whether its end is the end of the session's work."},
    },
}


def _query(name: str, schema: dict[str, Any], description: str, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema, "description": description}


def _call(summary: str, content: dict[str, Any], *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return one operation; `responses` in `more` come in addition, and `links` lead on from its success."""
    problem = {"description": "Refused.", "content": _problem()}
    done = {"description": "Done.", "content": content, "links": more.pop("links", {})}
    responses = {"200": done, "default": problem} | more.pop("responses", {})
    return {"summary": summary, "parameters": list(parameters), "responses": responses, **more}


def _link(operation: str, **parameters: str) -> dict[str, Any]:
    return {operation: {"operationId": operation, "parameters": parameters}}


def _problem() -> dict[str, Any]:
    return {"application/problem+json": {"schema": {"type": "object"}}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def description() -> dict[str, Any]:
    """Return the OpenAPI document."""
    anything, octets = _json({"type": "object"}), {"application/octet-stream": {"schema": {"format": "binary"}}}
    error = {"description": "Refused, here or by the local server.", "content": _json({}) | _problem()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "GPU Shopper's agent", "version": "1"},
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/node/v1/llm/chat": {
                "post": _call(
                    "A chat completion of the local OpenAI-compatible server, streamed where asked",
                    anything | {"text/event-stream": {"schema": _TEXT}},
                    requestBody={"required": True, "content": anything},
                    responses={"default": error},
                )
            },
            **_files(anything, octets),
            "/node/v1/ml/command": {
                "post": _call(
                    "Start a command without a shell, or control one",
                    _json(_STATE),
                    requestBody={"required": True, "content": _json(_COMMAND)},
                    links=_link("logs", command="$response.body#/id"),
                )
            },
            "/node/v1/status": {"get": _call("GPUs, disk, job, and when the session ends", anything)},
            "/node/v1/logs": {
                "get": _call(
                    "The end of a log",
                    {"text/plain": {"schema": _TEXT}},
                    _query("source", {"enum": ["job", "startup", "agent", "serve"]}, "Which log; job without it."),
                    _query("command", _TEXT, "The id of a command, for its output."),
                    _query("tail", {"type": "integer", "minimum": 0, "maximum": MOST_LINES}, "Lines; 100 without it."),
                    _query("follow", {"type": "boolean"}, "Send what is added, until the caller leaves."),
                    operationId="logs",
                )
            },
            "/node/v1/openapi.json": {"get": _call("This document", anything)},
        },
    }


def _files(anything: dict[str, Any], octets: dict[str, Any]) -> dict[str, Any]:
    """Return the paths of files."""
    part = {"description": "The part came. Send the rest from the byte in offset on.", "content": anything}
    return {
        "/node/v1/files/upload": {
            "post": _call(
                "Append the body to a file of the workspace",
                anything,
                _query("path", _TEXT, "Inside the workspace, such as data/train.jsonl.", required=True),
                _query("size", _NUMBER, "Bytes of the whole file.", required=True),
                _query("sha256", {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "Of the file.", required=True),
                _query("offset", _NUMBER, "The byte that this body begins at; 409 names the right one."),
                requestBody={"required": True, "content": octets},
                responses={"202": part},
                links=_link("download", path="$request.query.path"),
            )
        },
        "/node/v1/files/download/{path}": {
            "get": _call(
                "A file of the workspace; Range and If-Range resume it",
                octets,
                {"name": "path", "in": "path", "required": True, "schema": _TEXT},
                _query("checksum", {"type": "boolean"}, "Answer with the SHA-256 alone."),
                operationId="download",
            )
        },
    }
