"""Kaggle: a batch cloud. A push starts a run with a timeout; there is no SSH, no cancel and no listing of runs."""

from providers.clouds.kaggle.adapter import CAPABILITIES, KaggleProvider
from providers.clouds.kaggle.config import KaggleConfig

__all__ = ["CAPABILITIES", "KaggleConfig", "KaggleProvider"]
