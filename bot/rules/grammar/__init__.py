"""The words of the `/gpu` command."""
