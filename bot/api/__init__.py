"""The HTTP door: health."""
