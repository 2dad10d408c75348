"""The command line: one small file per verb, and the console they share."""
