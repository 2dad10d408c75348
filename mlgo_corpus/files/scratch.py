"""Folders for what is needed only while a process runs; those of processes that were killed are removed by the next.

A folder is locked as long as its process, or a worker of it, is alive. Names with process numbers would not do: whoever
is in another container has other ones, and the same temporary folder perhaps.
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
"""What such folders' names begin with."""


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Give an empty folder, by default in the temporary folder, that only this user may enter; it goes in the end.

    What a compiler does to it, or a daemon that it left, is no error of ours.

    Raises:
        OSError: there can be no such folder.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(place)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=place)).absolute()
        if (descriptor := lock_folder(folder, needed=False)) is not None:
            break  # else another process has just taken it for an abandoned one
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this user that nobody has locked."""
    for folder in place.glob(f"{SCRATCH_PREFIX}*"):
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid() and (descriptor := lock_folder(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(descriptor)
