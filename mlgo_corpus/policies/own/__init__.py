"""Policies of one's own, which are Python: the code that decides, and where it failed."""
