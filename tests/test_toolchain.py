from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from mlgo_corpus.run.toolchain import find_zig


def test_zig_is_found_when_the_package_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_zig() is None
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").write_text("raise AssertionError('imported')\n")
    importlib.invalidate_caches()
    assert find_zig() == (sys.executable, "-m", "ziglang")
