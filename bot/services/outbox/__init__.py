"""Deliver the outbox, and delay a termination until its notifications were attempted."""
