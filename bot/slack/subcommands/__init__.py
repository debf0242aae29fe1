"""Subcommands of `/gpu` that need several calls: what was spent, and network volumes."""
