"""Take approvers' decisions, carry out what follows, and handle auto-approval and break-glass."""
