"""The daily and weekly cost digest."""
