"""`gpu-shopper demo`: run everything on one machine."""
