"""The part of a page on a corpus."""
