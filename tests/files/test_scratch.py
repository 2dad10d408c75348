"""Folders for the time of a run: what a killed run left is removed by the next, what belongs to the living is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mlgo_corpus.files import scratch
from mlgo_corpus.files.scratch import SCRATCH_PREFIX, scratch_folder
from tests.conftest import PACKAGE_ROOT

HOLDER = """
import sys
from mlgo_corpus.files.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "probe").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def hold(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Let another process have a folder."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={"PYTHONPATH": PACKAGE_ROOT, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    return holder, Path(holder.stdout.readline().rstrip("\n"))


def test_the_next_removes_what_a_killed_one_left(temporary: Path) -> None:
    other = temporary / f"{SCRATCH_PREFIX}link"
    other.symlink_to(temporary / "elsewhere", target_is_directory=True)
    (temporary / "elsewhere").mkdir()
    holder, held = hold(temporary)
    with holder:
        with scratch_folder() as folder:
            assert folder.parent == temporary
            assert (held / "probe").is_dir()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert (held / "probe").is_dir()
        with scratch_folder() as folder:
            assert sorted(os.listdir(temporary)) == sorted(["elsewhere", folder.name, other.name])
    assert sorted(os.listdir(temporary)) == ["elsewhere", other.name]


def test_a_folder_that_is_taken_for_abandoned_is_not_used(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the making of a folder and its locking, somebody else sees it unlocked."""
    real, made = scratch.lock_folder, []

    def lock(folder: Path, *, needed: bool = True) -> int | None:
        if needed:  # the other one's
            return real(folder)
        made.append(folder)
        if len(made) == 1:
            scratch._remove_abandoned(temporary)
        return real(folder, needed=False)

    monkeypatch.setattr(scratch, "lock_folder", lock)
    with scratch_folder() as folder:
        assert made[1:] == [folder]
        assert os.listdir(temporary) == [folder.name]
    assert os.listdir(temporary) == []
