"""Vast.ai: a market of machines, each offer used once, with the label as the only name an instance has."""
