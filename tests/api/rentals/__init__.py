"""What is rented beside machines, over HTTP."""
