"""Worker objects on a cluster, shared by several experiments."""
