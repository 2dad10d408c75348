"""Corpora: the modules of a build, in a folder or packed, and the tables that describe them."""
