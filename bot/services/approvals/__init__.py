"""Decisions of approvers, what follows from them, auto-approval and break-glass."""
