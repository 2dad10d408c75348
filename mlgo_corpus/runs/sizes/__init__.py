"""Features and native sizes of every function."""
