"""Tables of words, written as text."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """Return the words that blanks separate."""
    return frozenset(text.split())
