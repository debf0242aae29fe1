"""Kaggle, served locally: kernels, sessions and the weekly quota, with the cloud's own manners and troubles."""
