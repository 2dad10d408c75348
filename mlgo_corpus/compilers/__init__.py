"""Compilers: finding, probing, choosing and running them."""
