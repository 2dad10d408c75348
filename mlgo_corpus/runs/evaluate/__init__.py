"""Policies against LLVM's default, on sizes of objects and of what is linked of them."""
