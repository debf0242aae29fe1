"""Tests of the whole program, over real HTTP, as its people meet it."""
