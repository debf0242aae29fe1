"""Read what machines and runs have shown, for the estimates of later ones; and the machines of sets."""
