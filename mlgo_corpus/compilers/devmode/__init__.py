"""Build a clang, an opt and an llc with LLVM's development mode, or with a model, from what a distribution ships."""
