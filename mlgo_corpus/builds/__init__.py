"""Builds: what a build left on disk."""
