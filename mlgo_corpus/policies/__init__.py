"""Policies: the objects that make decisions in live sessions."""
