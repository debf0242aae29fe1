"""One file a facet of a job: its fields, words, keys, checks, and what approvers read."""
