"""Folders that are needed only while a process runs; those of killed processes are removed by the next process.

A folder is locked as long as its process, or a worker of it, is alive. Names with process ids would not do: another
container has other ids, and perhaps the same temporary folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mlgo_corpus.files.lock import lock_folder

SCRATCH_PREFIX: Final = "mlgo-scratch-"
"""The beginning of such folders' names."""


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder, by default in the temporary folder, that only this user may enter; remove it in the end.

    If it cannot be removed, because of a compiler or a daemon that one left, that is not an error.

    Raises:
        OSError: the folder cannot be made.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(place)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=place)).absolute()
        if (descriptor := lock_folder(folder, needed=False)) is not None:
            break  # else another process has just removed it as abandoned
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this user that no process has locked."""
    for folder in place.glob(f"{SCRATCH_PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and (descriptor := lock_folder(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)
