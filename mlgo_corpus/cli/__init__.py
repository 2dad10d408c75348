"""The command line: one file per verb, and the console and options they share."""
