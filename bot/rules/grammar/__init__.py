"""Read the words of the `/gpu` command."""
