"""The table of functions and their native sizes."""
