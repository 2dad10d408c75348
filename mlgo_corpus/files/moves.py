"""Files that were made under other names, and get their own together.

When all of them are whole, a list says which file goes where, as JSON: ``[["0", "modules.parquet"], …]``, a path in
the work folder and one in the folder of the results. ``[null, "dataset.json"]`` is a file to be removed before. Only
then do the moves begin. Whoever meets the list of a run that was killed makes the moves that are left: nothing is made
twice, and the last file of the list is there when all are.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Move = tuple[str | None, str]


def list_moves(moves: Sequence[Move]) -> bytes:
    """Return the list as it is kept."""
    return json.dumps(list(map(list, moves))).encode()


def checked_moves(value: Any) -> list[Move] | None:
    """Return the moves of a list that was read, or None if it is none of ours or names what lies elsewhere."""
    if not isinstance(value, list) or not value:
        return None
    if any(not isinstance(move, list) or len(move) != 2 for move in value) or value[-1][0] is None:
        return None
    moves = [(source, place) for source, place in value]
    inside = all((source is None or _is_inside(source)) and _is_inside(place) for source, place in moves)
    return moves if inside else None


def _is_inside(name: object) -> bool:
    return isinstance(name, str) and ".." not in Path(name).parts and not os.path.isabs(name) and "\0" not in name


def make_moves(moves: Sequence[Move], work: Path, root: Path) -> None:
    """Move files from ``work`` to their places in ``root``, in this order, but for those that are there already.

    Raises:
        OSError: a file cannot be moved, or a link would lead it out of ``root``; what is left can be done later.
    """
    left = {place for source, place in moves if source is not None and os.path.lexists(work / source)}
    made = {place for source, place in moves if source is not None} - left
    for source, place in moves:
        target = root / place
        if source is None:
            if moves[-1][1] in left and place not in made:
                check_inside(root, target)
                target.unlink(missing_ok=True)
        elif place in left:
            check_inside(root, target)
            target.parent.mkdir(parents=True, exist_ok=True)
            (work / source).replace(target)


def check_inside(root: Path, place: Path) -> None:
    """Raise an OSError if a symbolic link below ``root`` stands where a folder of ``place`` has to be."""
    for folder in place.relative_to(root).parents:
        if folder.parts and (root / folder).is_symlink():
            raise OSError(errno.ELOOP, "a symbolic link, expected a folder", str(root / folder))
