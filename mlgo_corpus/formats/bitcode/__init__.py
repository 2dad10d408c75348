"""LLVM bitcode: containers, headers, and functions with their hashes."""
