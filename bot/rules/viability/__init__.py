"""Judge whether an offer can run what is asked at all, before it is priced, and say the reason when not."""
