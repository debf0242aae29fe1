"""The program that runs on a rented machine: it reports to GPU Shopper, and ends the machine when nobody else can.

It is built into one file (`make agent`) and runs on Python 3.10 and later without an installation. It imports nothing
of the rest of the project; docs/node.md says what both sides send to each other.
"""
