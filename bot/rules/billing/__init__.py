"""Billed time, metering, true-up and external costs."""
