"""Vast.ai, served locally."""

from providers.sandbox.vast.sandbox import VastSandbox

__all__ = ["VastSandbox"]
