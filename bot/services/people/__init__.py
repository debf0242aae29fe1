"""Find the person behind an actor, and whether Slack still counts them as a member."""
