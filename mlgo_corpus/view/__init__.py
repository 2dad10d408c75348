"""Report pages: corpora and datasets, summarised, drawn and explained in one HTML file."""
