"""Files: onto a disk and off it, whole or not at all."""
