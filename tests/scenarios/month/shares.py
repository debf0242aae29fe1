"""Where the month's sessions are asked for."""

from __future__ import annotations

#: Of 40 sessions a day, how many at each cloud. Kaggle gives thirty hours of GPU a week, and two runs at once.
SHARE = {"vast": 11, "runpod": 11, "lambda": 8, "tensordock": 8, "kaggle": 2}
