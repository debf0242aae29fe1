"""A black-box harness: real processes, a fault proxy, kills, pauses, crashes and exhaustion, and its own verdict."""
