"""Issue, reserve, amend and reopen the authority to spend."""
