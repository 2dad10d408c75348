"""Corpora: the modules of a build, in a folder or packed, and what is said of them."""
