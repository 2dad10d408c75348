"""From objects to a corpus."""
