"""Kaggle, served locally: kernels, sessions and the weekly quota, with the cloud's own manners and troubles."""

from providers.sandbox.kaggle.sandbox import KaggleSandbox

__all__ = ["KaggleSandbox"]
