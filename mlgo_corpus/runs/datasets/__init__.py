"""From logs to datasets, and from datasets to other files."""
