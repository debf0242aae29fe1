"""Judge when sessions end, are extended, or overspend."""
