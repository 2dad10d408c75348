"""Object files: sections, symbols, archives, and two of them compared."""
