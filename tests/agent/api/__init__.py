"""Tests of the agent's API: over HTTP in this process, and over TLS in processes of its own."""
