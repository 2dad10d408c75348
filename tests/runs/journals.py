"""What a run's workers have kept in its work folder: the lines of its journals."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any


def kept(work: Path) -> dict[int, Any]:
    """Return the outcomes in a work folder by their numbers, the last of each; torn lines do not count."""
    found: dict[int, Any] = {}
    for path in work.glob("rows-*.jsonl"):
        with suppress(OSError):  # it may go while we look
            for line in path.read_bytes().splitlines(keepends=True):
                number, _, record = line.partition(b" ")
                with suppress(ValueError):
                    if line.endswith(b"\n"):
                        found[int(number)] = json.loads(record)
    return found


def change(work: Path, number: int, record: bytes | None) -> None:
    """Put another record in the place of an outcome's, or remove its line."""
    for path in work.glob("rows-*.jsonl"):
        lines = path.read_bytes().splitlines(keepends=True)
        head = b"%d " % number
        changed = [
            b"" if record is None else head + record + b"\n" if line.startswith(head) else line for line in lines
        ]
        if record is None:
            changed = [line for line in lines if not line.startswith(head)]
        path.write_bytes(b"".join(changed))
