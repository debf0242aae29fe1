"""Define what the agent on a rented machine and the service say to each other, once for both.

Only the standard library is imported here, because the agent's archive carries this package to Python 3.10.
"""
