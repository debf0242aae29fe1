"""Compute and announce the daily and weekly cost digest."""
