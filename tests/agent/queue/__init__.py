"""Tests of the queue on a machine."""
