"""Kaggle: a batch cloud. A push starts a run with a timeout; there is no SSH, no cancel and no listing of runs."""
