"""Plan a training run: sizes, costs, charts, files and comparisons."""
