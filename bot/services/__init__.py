"""Carry out the use-cases.

A client (Slack, REST, command line) sends a command and gets a `Reply`; a job sends a claim. Services know no client.
"""
