"""Fuzzers: real inputs, damaged by chance, and what has to hold all the same.

``python -m tests.fuzz`` runs them for a while (``make fuzz``), and ``tests/test_fuzz.py`` a few inputs of each.
A fuzzer is a module with two functions. ``prepare(folder)`` writes the inputs that are to be damaged.
``check(prepared, rng, folder)`` makes one input in an empty folder, by nothing but ``rng``, and raises if something
does not hold; it may not leave a process or say anything on stdout or stderr.
"""
