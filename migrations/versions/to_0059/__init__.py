"""Keep the oldest schema steps, from the baseline on, so that the folder above stays short."""
