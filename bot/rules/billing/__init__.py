"""Compute billed time, accruals, true-ups and other tools' costs."""
