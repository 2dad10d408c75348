"""Every module compiled again and compared with its object."""
