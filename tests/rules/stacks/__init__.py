"""Tests of the software stacks."""
