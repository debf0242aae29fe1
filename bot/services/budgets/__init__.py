"""Set budget limits and enforce them."""
