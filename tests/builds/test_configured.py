"""What a tree that compiled nothing tells, and the command that helps."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from mlgo_corpus.builds.configured import Advice, advise

SHIMS = "/cache/shims/abc"
OURS = "mlgo-corpus build --output '../the corpus'"
CACHE = "# comment\nCMAKE_CXX_COMPILER:FILEPATH=/usr/bin/c++\nCMAKE_C_COMPILER:FILEPATH=/usr/bin/cc\n"
STATUS = 'S["CXX"]="/opt/gcc/bin/g++ -m64"\nS["CC"]="gcc -std=gnu11"\nS["CPP"]="gcc -E"\n'


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("b", "a b"):
        (tmp_path / folder).mkdir()


def advice(*build: str) -> Advice:
    found = advise(build, OURS, SHIMS)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "build",
    [
        ("cmake", "--build", "b"),
        ("sh", "-c", "cmake -B b && cmake --build b -j8"),
        ("make", "-Cb"),
        ("ninja", "-C", "b"),
    ],
)
def test_a_cmake_tree(build: tuple[str, ...]) -> None:
    Path("b/CMakeCache.txt").write_text(CACHE)
    Path("b/build.ninja").write_text("")
    found = advice(*build)
    assert found.why == "b/CMakeCache.txt names /usr/bin/c++, which is called by its path"
    compiles = "mlgo-corpus build --output '../the corpus' --from b/compile_commands.json"
    assert found.command == f"cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON b && {compiles}"
    Path("b/compile_commands.json").write_text("[]")
    assert advice(*build).command == compiles
    Path("b/CMakeCache.txt").write_text(CACHE.replace("/usr/bin", SHIMS))
    again = "mlgo-corpus build --output '../the corpus' -- cmake --build b --clean-first"
    assert advice(*build) == Advice("it was up to date", again)


def test_a_ninja_tree() -> None:
    Path("a b/build.ninja").write_text("rule cc\n command = cc $in\n")
    found = advice("ninja", "-C", "a b")
    assert found.why == "a b/build.ninja was up to date, or calls its compiler by a path"
    assert found.command == (
        "ninja -C 'a b' -t compdb > 'a b/compile_commands.json' && "
        "mlgo-corpus build --output '../the corpus' --from 'a b/compile_commands.json'"
    )
    Path("a b/build.ninja").write_text(f"rule cc\n command = {SHIMS}/clang $in\n")
    found = advice("ninja", "-C", "a b")
    assert found.why == "it was up to date"
    assert shlex.split(found.command)[4:] == ["--", "sh", "-c", "ninja -C 'a b' -t clean && ninja -C 'a b'"]


def test_a_tree_of_configure() -> None:
    Path("b/config.status").write_text(STATUS)
    begin = "mlgo-corpus build --output '../the corpus' -- sh -c "
    found = advice("make", "-C", "b", "-j8")
    assert found.why == "it was up to date, or calls a compiler by its path"
    assert found.command == f"{begin}'make -C b clean && make -C b -j8 '\"'\"'CXX=g++ -m64'\"'\"''"
    Path("b/config.status").write_text(STATUS.replace("/opt/gcc/bin/", ""))
    found = advice("gmake", "-Cb")
    assert (found.why, found.command) == ("it was up to date", f"{begin}'gmake -Cb clean && gmake -Cb'")


def test_another_makefile_and_another_build() -> None:
    found = advice("make", "--file", "x.mk", "all")
    assert found.command == (
        "mlgo-corpus build --output '../the corpus' -- "
        "sh -c 'make --file x.mk clean && make --file x.mk all CC=cc CXX=c++'"
    )
    assert advise(("./build.sh",), OURS, SHIMS) is None
    assert advise(("sh", "-c", "echo 'it"), OURS, SHIMS) is None
