"""Pages for people: what is on disk, summed up, drawn and explained in one HTML file."""
