"""The edits of a command: what is refused, and what is told of edits without effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.errors import UsageError


def test_a_replacement_of_what_is_deleted_is_refused() -> None:
    message = "replace_flags -O=z: `delete_flags`=-O takes this option out before it is replaced; give one of the two"
    with pytest.raises(UsageError, match=re.escape(message)):
        CommandEdits(delete=("-w", "-O"), replace=("-target-cpu=x", "-O=z")).check()
    CommandEdits(delete=("-O2",), replace=("-O=z",)).check()  # -O3 would be replaced


def test_hints_tell_of_what_the_deletions_left_for_the_replacements(tmp_path: Path) -> None:
    (tmp_path / "a.cmd").write_bytes(b"-cc1\0-O2\0-w\0")
    (tmp_path / "b.cmd").write_bytes(b"-cc1\0-O3\0")
    one, two = (Module(tmp_path, name) for name in "ab")
    edits = CommandEdits(delete=("-O2", "-w"), replace=("-O=z",))
    told = "`replace_flags`=-O=z: no command has this option, nothing was changed"
    assert list(edits.without_effect([one], ())) == [told]
    assert list(edits.without_effect([one, two], ())) == []
    assert list(edits.without_effect([two], ())) == [
        f"`delete_flags`={text}: no command has this option, nothing was changed" for text in ("-O2", "-w")
    ]
