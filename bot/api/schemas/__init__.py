"""Bodies and answers of the routes, one file per subject."""
