"""Store: what lies on disk."""
