"""Runs: one thing done to every module, resumably."""
