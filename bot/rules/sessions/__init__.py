"""When sessions end, are extended, or overspend."""
