"""Tests of the rules: examples, and properties over generated input."""
