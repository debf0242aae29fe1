"""Vast.ai, served locally."""

from providers.sandbox.vast.cloud import VastSandbox

__all__ = ["VastSandbox"]
