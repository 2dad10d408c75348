"""The bytes that every format is read from."""

from __future__ import annotations

Buffer = bytes | memoryview
"""The bytes of a file, or a part of them. A memoryview is contiguous, of unsigned bytes; neither kind is copied."""
