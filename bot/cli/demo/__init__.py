"""`gpu-shopper demo`: everything on one machine."""
