"""Files read and written: complete or not at all, with bounds on what is read."""
