"""Find compilers."""

from __future__ import annotations

import importlib.util
import sys


def find_zig() -> tuple[str, ...] | None:
    """Find the clang in the ``ziglang`` package: the words that come before ``cc``, or None."""
    if importlib.util.find_spec("ziglang") is None:
        return None
    return (sys.executable, "-m", "ziglang")
