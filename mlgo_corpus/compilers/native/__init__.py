"""A clang with a policy inside: a C program around a stock clang, and the making of it."""
