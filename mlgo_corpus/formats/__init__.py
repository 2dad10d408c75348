"""Formats: bytes in hand, nothing else. No processes, no folders."""
