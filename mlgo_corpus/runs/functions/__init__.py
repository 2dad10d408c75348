"""The functions of every module of a corpus."""
