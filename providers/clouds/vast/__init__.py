"""Vast.ai: a market of machines, each offer used once, with the label as the only name an instance has."""

from providers.clouds.vast.adapter import CAPABILITIES, VastConfig, VastProvider

__all__ = ["CAPABILITIES", "VastConfig", "VastProvider"]
