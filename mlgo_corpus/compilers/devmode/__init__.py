"""Build a clang, an opt and an llc with LLVM's development mode from what a distribution ships."""
