"""Policies from data: examples of better decisions, and models fitted to them."""
