"""Tests of the start-up that the agent runs."""
