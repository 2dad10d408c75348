from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import lzma
import re
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mlgo_corpus import read_log
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.devmode import apt, build, compilation, installed, sources
from mlgo_corpus.compilers.devmode.build import PHASES, DevmodeBuild, build_devmode
from mlgo_corpus.compilers.devmode.probe import probe_tools
from mlgo_corpus.compilers.devmode.record import Embedded
from mlgo_corpus.corpus.open import Corpus
from mlgo_corpus.errors import FormatError, ToolError, UsageError
from mlgo_corpus.extract import extract_corpus
from mlgo_corpus.files.lock import locked
from mlgo_corpus.formats.logs.tasks import TASKS, Task, for_clang
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.embedded import model_header, model_name
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policy import compile_policy
from mlgo_corpus.toolchain import build_toolchain, list_released
from tests.conftest import DATA, Llvm, unpack
from tests.policies.samples import columns_of, policy_of, random_trees, real_observations, small_policy

pytestmark = pytest.mark.whole

CONDITION = "#ifdef LLVM_HAVE_TFLITE\n"

VERSION = "set(LLVM_VERSION_MAJOR 19)\nset(LLVM_VERSION_MINOR 1)\nset(LLVM_VERSION_PATCH 7)\n"

TREE = {
    "cmake/Modules/LLVMVersion.cmake": VERSION,
    "llvm/CMakeLists.txt": "project(LLVM)\n",
    "llvm/lib/Analysis/DevelopmentModeInlineAdvisor.cpp": CONDITION,
    "llvm/lib/Analysis/InlineSizeEstimatorAnalysis.cpp": CONDITION,
    "llvm/lib/Analysis/ModelUnderTrainingRunner.cpp": CONDITION,
    "llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp": CONDITION,
    "llvm/lib/CodeGen/RegAllocGreedy.h": "",
    "llvm/tools/opt/opt.cpp": "",
    "llvm/tools/opt/BreakpointPrinter.cpp": "",
    "llvm/tools/llc/llc.cpp": "",
    "clang/tools/driver/driver.cpp": "int clang_main(int, char **, const llvm::ToolContext &);",
    "clang/tools/driver/cc1_main.cpp": "",
}
NOT_KEPT = {
    "llvm/lib/Analysis/TFLiteUtils.cpp": CONDITION,
    "llvm/lib/Analysis/AliasAnalysis.cpp": "",
    "llvm/lib/Analysis/models/gen.cpp": CONDITION,
    "llvm/lib/CodeGen/CMakeLists.txt": CONDITION,
    "mlir/lib/Analysis/Mlir.cpp": CONDITION,
}
# What is compiled of it: with the evaluator and the main of clang, and without what libLLVMOptDriver.a has.
COMPILED = 10

MACHINE_FILES = (
    "bin/ld.lld",
    "bin/clang",
    "bin/clang++",
    "lib/libLLVMAnalysis.a",
    "lib/libLLVMOptDriver.a",
    "lib/libPolly.a",
    "lib/libPollyISL.a",
    "lib/libclangFrontendTool.a",
    "include/llvm/Analysis/Utils/TFUtils.h",
    "include/clang/Driver/Options.inc",
)

LLVM_CONFIG = """#!/bin/sh
for word; do
  case "$word" in
    --version) echo VERSION ;;
    --bindir) echo ROOT/bin ;;
    --libdir) echo ROOT/lib ;;
    --includedir) echo ROOT/include ;;
    --cxxflags) echo "-IROOT/include -std=c++17" ;;
    --has-rtti) echo YES ;;
    --libs) echo "-lLLVMAnalysis" ;;
    --system-libs) echo "-lm -lz ROOT/system/libz3.so" ;;
  esac
done
"""

# It makes an object of what it is given. A file in `fail` says what it should complain of, one in `hang` makes it wait.
CLANGXX = """#!/bin/sh
case "$1" in
  -print-file-name=*)
    if [ -e "ROOT/system/${1#*=}" ]; then echo "ROOT/system/${1#*=}"; else echo "${1#*=}"; fi; exit ;;
esac
source=link
for word; do
  [ "$last" = -c ] && source=${word##*/}
  last=$word
done
[ "$source" = link ] && source=${last##*/} && source=link-${source%%.*}
echo "$source" >>ROOT/calls
printf half >"$last"
if [ -e "ROOT/hang/$source" ]; then : >"ROOT/hanging"; exec /bin/sleep 600; fi
if [ -e "ROOT/fail/$source" ]; then
  while [ -e "ROOT/hang" ] && [ ! -e "ROOT/hanging" ]; do /bin/sleep 0.01; done
  while read -r line; do echo "$line" >&2; done <"ROOT/fail/$source"; exit 1
fi
printf whole >"$last"
"""


class Machine:
    """A made-up machine: its programs are shell scripts, and no others are on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.programs = root / "path"
        for name in ("path", "system", "fail"):
            (root / name).mkdir(parents=True)
        for name in MACHINE_FILES:
            self.write(name)
        for name in ("libm.so", "libz.a", "libz3.so"):
            self.write(f"system/{name}")
        self.write("include/llvm/Support/Extension.def", "HANDLE_EXTENSION(Polly)\n")
        self.script("clang++", CLANGXX, folder=root / "bin")
        (root / "lib" / "clang" / "19").mkdir(parents=True)
        self.script("clang", "#!/bin/sh\necho ROOT/lib/clang/19\n", folder=root / "bin")
        self.llvm_config("llvm-config-19", "19.1.7")

    def write(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def script(self, name: str, text: str, folder: Path | None = None) -> Path:
        path = (folder or self.programs) / name
        path.write_text(text.replace("ROOT", str(self.root)))
        path.chmod(0o755)
        return path

    def llvm_config(self, name: str, version: str) -> None:
        self.script(name, LLVM_CONFIG.replace("VERSION", version))

    def apt(self, script: str) -> None:
        self.script("apt-get", f'#!/bin/sh\necho "$@" >>ROOT/apt-calls\n{script}')

    def calls(self) -> list[str]:
        path = self.root / "calls"
        lines = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return sorted(lines)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path / "machine")
    monkeypatch.setenv("PATH", str(made.programs))
    monkeypatch.setattr(build, "probe_tools", lambda *_, **__: {"clang inlining": 2, "opt ir2native rows": 1})
    return made


def write_tree(folder: Path, files: Mapping[str, str] = {**TREE, **NOT_KEPT}) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "llvm-project")


def files_of(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()
    )


def ignore(*_: object) -> None:
    """Show no progress."""


def run_build(
    tmp_path: Path, source: Path | None, *, force: bool = False, progress: build.Progress = ignore, **options: bool
) -> DevmodeBuild:
    return build_devmode(
        tmp_path / "out",
        llvm_source=source,
        cache=tmp_path / "cache",
        jobs=2,
        force=force,
        progress=progress,
        install=options.get("install", False),
    )


# Sources.


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (TREE["cmake/Modules/LLVMVersion.cmake"], "19.1.7"),
        ("  set(LLVM_VERSION_MAJOR 16)\n set(LLVM_VERSION_MINOR 0)\n set(LLVM_VERSION_PATCH 6)\n", "16.0.6"),
        ("set(LLVM_VERSION_MAJOR 16)\nset(LLVM_VERSION_MINOR 0)\n", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_cmake(text: str, version: str | None) -> None:
    assert sources.parse_version(text) == version


@pytest.mark.parametrize("path", TREE)
def test_what_is_needed_is_kept(path: str) -> None:
    assert sources.is_wanted(path)
    assert sources.is_kept(path, TREE[path].encode())


@pytest.mark.parametrize("path", NOT_KEPT)
def test_what_is_not_needed_is_left_out(path: str) -> None:
    assert not (sources.is_wanted(path) and sources.is_kept(path, NOT_KEPT[path].encode()))


def tarball(members: Mapping[str, str], top: str = "llvm-toolchain-19_19.1.7/") -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(top + name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "gz": gzip.compress, "tar": bytes}


@pytest.mark.parametrize("has_xz", [True, False], ids=["xz", "no-xz"])
@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("top", ["llvm-toolchain-19_19.1.7/", "./", ""])
def test_a_tarball_gives_the_same_files_as_its_tree(
    kind: str, has_xz: bool, top: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_xz:
        monkeypatch.setenv("PATH", str(tmp_path))
    archive = tmp_path / "source.tar"
    archive.write_bytes(COMPRESSIONS[kind](tarball({**TREE, **NOT_KEPT}, top)))
    seen: list[tuple[int, int]] = []
    assert sources.unpack(archive, tmp_path / "unpacked", lambda *count: seen.append(count)) == len(TREE)
    assert sources.copy_tree(tree, tmp_path / "copied") == len(TREE)
    assert files_of(tmp_path / "unpacked") == files_of(tmp_path / "copied") == sorted(TREE)
    assert sources.digest_files(tmp_path / "unpacked") == sources.digest_files(tmp_path / "copied")
    assert seen[-1] == (archive.stat().st_size, archive.stat().st_size)


def test_a_tarball_may_have_the_version_last(tmp_path: Path) -> None:
    """As that of LLVM 22, which has an llvm/CMakeLists.txt without the version before it."""
    last = "cmake/Modules/LLVMVersion.cmake"
    members = {name: text for name, text in TREE.items() if name != last} | {"polly/README": "", last: VERSION}
    archive = tmp_path / "source.tar"
    archive.write_bytes(tarball(members))
    assert sources.unpack(archive, tmp_path / "unpacked", ignore) == len(TREE)
    assert files_of(tmp_path / "unpacked") == sorted(TREE)


def test_members_of_a_hostile_tarball_land_nowhere_else(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in (
            "../evil.cpp",
            "/etc/evil.cpp",
            "llvm/lib/Analysis/../../../../evil.h",
            "x/../llvm/lib/Analysis/evil.h",
            "../llvm/lib/Analysis/stays.h",
            "llvm/lib/Analysis/..",
        ):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"evil"))
        for kind, name in itertools.product((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE), ("llc.h", "llc.cpp")):
            member = tarfile.TarInfo(f"llvm/tools/llc/{name}")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        folder = tarfile.TarInfo("llvm/tools/opt/folder.h")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    archive = tmp_path / "hostile.tar"
    archive.write_bytes(data.getvalue())
    sources.unpack(archive, tmp_path / "a" / "b", ignore)
    assert files_of(tmp_path / "a") == ["b/llvm/lib/Analysis/stays.h"]
    assert files_of(tmp_path) == ["a/b/llvm/lib/Analysis/stays.h", "hostile.tar"]


def test_a_source_file_of_gigabytes_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x/llvm/tools/llc/llc.cpp")
    member.size = sources.MAX_FILE_BYTES + 1
    archive = tmp_path / "large.tar"
    archive.write_bytes(member.tobuf() + bytes(1024))
    with pytest.raises(FormatError, match="has 33554433 bytes, expected at most 33554432"):
        sources.unpack(archive, tmp_path / "a", ignore)


@pytest.mark.parametrize("has_xz", [True, False], ids=["xz", "no-xz"])
@pytest.mark.parametrize("kind", ["xz", "gz"])
def test_a_truncated_archive_is_refused_at_every_length(
    kind: str, has_xz: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_xz:
        monkeypatch.setenv("PATH", str(tmp_path))
    whole = COMPRESSIONS[kind](tarball(TREE))
    archive = tmp_path / "source.tar"
    for length in range(0, len(whole) - 1, 1 + len(whole) // 20):
        archive.write_bytes(whole[:length])
        with pytest.raises(
            FormatError, match=r"source\.tar: not a complete \.tar\.xz or \.tar\.gz of LLVM's sources: "
        ):
            sources.unpack(archive, tmp_path / "a", ignore)
        assert not (tmp_path / "a" / "no").exists()


def test_sources_of_another_version_are_refused(machine: Machine, tmp_path: Path, tree: Path) -> None:
    (tree / "cmake/Modules/LLVMVersion.cmake").unlink()
    numbers = {"MAJOR": 16, "MINOR": 0, "PATCH": 6}
    (tree / "llvm/CMakeLists.txt").write_text("".join(f"set(LLVM_VERSION_{k} {v})\n" for k, v in numbers.items()))
    with pytest.raises(UsageError, match=r"the sources are LLVM 16\.0\.6, llvm-config-19 is LLVM 19\.1\.7: "):
        run_build(tmp_path, tree)
    assert not (tmp_path / "out").exists()


def test_sources_without_development_mode_are_refused(machine: Machine, tmp_path: Path, tree: Path) -> None:
    (tree / "llvm/lib/Analysis/InlineSizeEstimatorAnalysis.cpp").write_text("")
    with pytest.raises(UsageError, match=r"no llvm/lib/Analysis/InlineSizeEstimatorAnalysis\.cpp that tests LLVM_HAVE"):
        run_build(tmp_path, tree)


def test_a_folder_without_sources_is_refused(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty: not LLVM's sources: expected LLVM's version in cmake/Modules"):
        run_build(tmp_path, tmp_path / "empty")
    with pytest.raises(UsageError, match=r"^llvm_source .*none: no such file or folder; expected a tree"):
        run_build(tmp_path, tmp_path / "none")


# apt.


def test_sources_of_packages_become_sources_of_sources() -> None:
    text = """\
# a comment
Types: deb
# http://snapshot.debian.org/archive
URIs: http://mirror/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Enabled: no
Types: deb
URIs: http://other/debian
Suites: sid


Types: deb deb-src
uris: http://inline/debian
Suites: ./
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----
"""
    first, second = apt.deb822_sources(text)
    assert first == (
        "Types: deb-src\nURIs: http://mirror/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    assert second.startswith("Types: deb-src\nuris: http://inline/debian\nSuites: ./\nSigned-By:\n -----BEGIN")
    assert second.endswith(" mQINBF\n -----END PGP PUBLIC KEY BLOCK-----\n")


def test_lines_for_packages_become_lines_for_sources() -> None:
    text = """\
# deb http://commented/ sid main
deb http://mirror/debian bookworm main contrib # why
  deb [ arch=amd64 signed-by=/etc/apt/keyrings/llvm.asc ] https://mirror/bookworm/ llvm-toolchain-bookworm-19 main
deb-src http://mirror/debian bookworm main contrib
rpm http://mirror
"""
    assert list(apt.one_line_sources(text)) == [
        "deb-src http://mirror/debian bookworm main contrib\n",
        "deb-src [ arch=amd64 signed-by=/etc/apt/keyrings/llvm.asc ] https://mirror/bookworm/"
        " llvm-toolchain-bookworm-19 main\n",
        "deb-src http://mirror/debian bookworm main contrib\n",
    ]


@pytest.fixture
def apt_machine(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose dpkg knows LLVM 19, with apt's sources in one file."""
    monkeypatch.setattr(apt, "SYSTEM_APT", machine.root / "apt")
    monkeypatch.setattr(apt, "OS_RELEASE", machine.write("os-release", 'ID=debian\nVERSION_CODENAME="trixie"\n'))
    machine.write("apt/sources.list", "deb http://mirror/debian trixie main\n")
    machine.write("apt/sources.list.d/old.list.disabled", "deb http://old/debian trixie main\n")
    machine.script(
        "dpkg-query",
        '#!/bin/sh\ncase "$3" in *source:*) printf "llvm-toolchain-19 1:19.1.7-3" ;; *) exit 1 ;; esac\n',
    )
    return machine


FAKE_APT = """
for word; do last=$word; done
[ -e ROOT/update-fails ] && [ "$last" = update ] && { echo "E: Failed to fetch http://mirror  No host" >&2; exit 100; }
case "$*" in
  *update*) echo "Fetched 9,500 kB in 1s (9,500 kB/s)" ;;
  *--print-uris*)
    case "$last" in *=*) [ -e ROOT/no-exact ] && { echo "E: Can not find version" >&2; exit 100; } ;; esac
    [ -e ROOT/no-source ] && { echo "E: Unable to find a source package for llvm-toolchain-19" >&2; exit 100; }
    while read -r line; do echo "$line"; done <ROOT/uris ;;
  *--download-only*)
    [ -e ROOT/download-fails ] && { echo "E: Failed to fetch http://mirror/x  Gone" >&2; echo "E: more" >&2; exit 100; }
    /bin/cp ROOT/archive/* . && echo "Fetched 2 kB in 0s (2 kB/s)" ;;
esac
"""


def add_source_package(machine: Machine, upstream: str = "19.1.7", revision: str = "3") -> Path:
    """Let apt have the source package; its tarball is returned."""
    machine.apt(FAKE_APT)
    data = lzma.compress(tarball({**TREE, **NOT_KEPT}))
    shutil.rmtree(machine.root / "archive", ignore_errors=True)
    name = f"llvm-toolchain-19_{upstream}"
    archive = machine.root / "archive" / f"{name}.orig.tar.xz"
    archive.parent.mkdir()
    archive.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    machine.write(
        f"archive/{name}-{revision}.dsc",
        f"Format: 3.0 (quilt)\nVersion: 1:{upstream}-{revision}\nChecksums-Sha1:\n 00 {len(data)} {archive.name}\n"
        f"Checksums-Sha256:\n {digest} {len(data)} {archive.name}\n 00 1 {name}-{revision}.debian.tar.xz\n",
    )
    machine.write(
        "uris",
        "Need to get 1 MB of source archives.\n"
        f"'http://mirror/{name}-{revision}.dsc' {name}-{revision}.dsc 500 SHA256:0\n"
        f"'http://mirror/{archive.name}' {archive.name} {len(data)} SHA256:{digest}\n",
    )
    return archive


def test_apt_fetches_the_source_package(apt_machine: Machine, tmp_path: Path) -> None:
    archive = add_source_package(apt_machine)
    made = run_build(tmp_path, None)
    assert [phase.name for phase in made.phases] == ["look", "sources", "unpack", "compile", "link", "probe"]
    assert made.phases[1].detail == "llvm-toolchain-19 1:19.1.7-3, 10 MB fetched"
    assert made.fetched_bytes == 9_502_000
    calls = (apt_machine.root / "apt-calls").read_text().splitlines()
    assert [re.sub(r"-o \S+ ", "", call) for call in calls] == [
        "update",
        "source --download-only --print-uris llvm-toolchain-19=1:19.1.7-3",
        "source --download-only -y llvm-toolchain-19=1:19.1.7-3",
    ]
    work = tmp_path / "cache" / "devmode-build" / "llvm-19.1.7"
    assert not (work / "apt").exists()
    assert f"-o Dir::Etc::sourceparts={work / 'apt' / 'sources'} " in calls[0]
    assert "-o Dir::Etc::sourcelist=/dev/null " in calls[0]
    description = json.loads((tmp_path / "out" / "toolchain.json").read_text())
    assert description["sources"] == {
        "package": "llvm-toolchain-19",
        "version": "1:19.1.7-3",
        "file": archive.name,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "files_sha256": sources.digest_files(work / "source-1_19.1.7-3"),
    }
    again = run_build(tmp_path, None, force=True)
    assert [phase.detail for phase in again.phases[1:3]] == ["already there", "already there"]


def test_apt_gets_the_sources_of_the_system_and_then_those_of_debian(apt_machine: Machine) -> None:
    own, debian = apt._iter_source_lists()
    assert own == {"system.list": "deb-src http://mirror/debian trixie main\n"}
    assert re.findall(r"Suites: (.*)", debian["debian.sources"]) == ["trixie trixie-updates", "trixie-security"]
    (apt_machine.root / "apt/sources.list").unlink()
    assert list(apt._iter_source_lists()) == [debian]
    (apt_machine.root / "os-release").write_text("ID=ubuntu\nVERSION_CODENAME=noble\n")
    assert list(apt._iter_source_lists()) == []
    with pytest.raises(UsageError, match="apt-get"):
        apt.fetch_source("llvm-toolchain-19", "1:19.1.7-3", apt_machine.root / "x", ignore)
    apt_machine.apt("exit 1")
    with pytest.raises(
        UsageError, match=r"1:19\.1\.7-3: this machine has no apt sources; name a folder: `llvm_source` DIR"
    ):
        apt.fetch_source("llvm-toolchain-19", "1:19.1.7-3", apt_machine.root / "x", ignore)


def test_another_revision_of_the_same_sources_will_do(apt_machine: Machine, tmp_path: Path) -> None:
    add_source_package(apt_machine, revision="4")
    apt_machine.write("no-exact")
    assert run_build(tmp_path, None).phases[1].detail.startswith("llvm-toolchain-19 1:19.1.7-4,")


def test_another_version_of_the_sources_will_not_do(apt_machine: Machine, tmp_path: Path) -> None:
    add_source_package(apt_machine, upstream="19.1.8")
    apt_machine.write("no-exact")
    with pytest.raises(UsageError, match=r"llvm-toolchain-19 1:19\.1\.7-3: there is 19\.1\.8, not 1:19\.1\.7-3; name"):
        run_build(tmp_path, None)


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        (
            "update-fails no-source",
            UsageError,
            r"1:19\.1\.7-3: Failed to fetch http://mirror  No host; name a folder: ",
        ),
        (
            "no-source",
            UsageError,
            r"1:19\.1\.7-3: Unable to find a source package for llvm-toolchain-19; name a folder: ",
        ),
        (
            "download-fails",
            ToolError,
            r"^apt-get: exit code 100: Failed to fetch http://mirror/x  Gone; name a folder or an archive: `llvm",
        ),
    ],
)
def test_what_apt_says_is_passed_on(
    what: str, kind: type[Exception], message: str, apt_machine: Machine, tmp_path: Path
) -> None:
    add_source_package(apt_machine)
    for name in what.split():
        apt_machine.write(name)
    with pytest.raises(kind, match=message):
        run_build(tmp_path, None)
    assert not (tmp_path / "out").exists()
    for name in what.split():
        (apt_machine.root / name).unlink()
    assert run_build(tmp_path, None).tools


@pytest.mark.parametrize(
    ("data", "message"), [(b"x", "expected 1?[0-9]+ bytes, .* found 1"), (None, "expected sha256")]
)
def test_another_tarball_than_the_package_names_is_refused(
    data: bytes | None, message: str, apt_machine: Machine, tmp_path: Path
) -> None:
    archive = add_source_package(apt_machine)
    whole = archive.read_bytes()
    archive.write_bytes(data or whole[:-1] + b"x")
    with pytest.raises(FormatError, match=message):
        run_build(tmp_path, None)


def test_an_llvm_that_dpkg_does_not_know_needs_sources(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"LLVM 19\.1\.7 is not Debian's llvm-19-dev, .* folder: `llvm_source` DIR"):
        run_build(tmp_path, None)


# What is installed.


def test_an_llvm_with_all_there_is_nothing_missing_of(machine: Machine) -> None:
    found, missing = installed.look(None)
    assert missing == ()
    assert found is not None
    assert (found.version, found.major, found.packages) == ("19.1.7", 19, ())
    assert found.clangxx == machine.root / "bin" / "clang++"
    assert found.compile_flags() == ("-std=c++17",)


def test_the_version_known_to_work_comes_first_and_then_what_is_complete(machine: Machine) -> None:
    for name, version in (("21", "21.1.0"), ("18", "18.1.8"), ("22", "22.1.0")):
        machine.llvm_config(f"llvm-config-{name}", version)
    versions = []
    for name in ("19", "21", "18"):
        found, _ = installed.look(None)
        versions.append(found.version if found else "")
        (machine.programs / f"llvm-config-{name}").unlink()
    assert versions == ["19.1.7", "21.1.0", "18.1.8"]
    found, missing = installed.look(None)  # 22 has nothing that could be built
    assert found is None
    assert installed.package_names(missing) == [
        *("llvm-19-dev", "clang-19", "lld-19", "libclang-19-dev", "libpolly-19-dev"),
        *("zlib1g-dev", "libzstd-dev", "libxml2-dev", "libz3-dev"),
    ]


def test_versions_without_development_mode_are_refused_by_name(machine: Machine) -> None:
    machine.llvm_config("llvm-config-22", "22.1.8")
    with pytest.raises(UsageError, match=r"llvm-config-22 is LLVM 22\.1\.8, expected 16 to 21"):
        installed.look("llvm-config-22")
    with pytest.raises(UsageError, match="no program llvm-config-15; name another `llvm_config`"):
        installed.look("llvm-config-15")
    machine.script("llvm-config-18", "#!/bin/sh\necho hello\n")
    with pytest.raises(UsageError, match=r"not an llvm-config: expected a version and three folders, got .'hello'."):
        installed.look("llvm-config-18")


@pytest.mark.parametrize(
    ("file", "named", "package"),
    [
        ("bin/clang++", "clang++", "clang-19"),
        ("bin/ld.lld", "ld.lld", "lld-19"),
        ("lib/libLLVMAnalysis.a", "libLLVMAnalysis.a", "llvm-19-dev"),
        ("lib/libPolly.a", "libPolly.a", "libpolly-19-dev"),
        ("lib/libclangFrontendTool.a", "libclangFrontendTool.a", "libclang-19-dev"),
        ("system/libz.a", "libz.so", "zlib1g-dev"),
        ("system/libz3.so", "libz3.so", "libz3-dev"),
    ],
)
def test_what_is_missing_is_named_with_its_package(
    file: str, named: str, package: str, machine: Machine, tmp_path: Path, tree: Path
) -> None:
    (machine.root / file).unlink()
    machine.apt("exit 1")
    with pytest.raises(UsageError) as caught:
        run_build(tmp_path, tree)
    assert str(caught.value) == (
        f"llvm-config-19 is LLVM 19.1.7: missing {named}; apt-get install {package}, or add `install`"
    )
    assert not (tmp_path / "out").exists()


def test_all_that_is_missing_is_named_in_one_line(machine: Machine, tmp_path: Path, tree: Path) -> None:
    for name in ("ld.lld", "clang++"):
        (machine.root / "bin" / name).unlink()
    (machine.root / "lib" / "libPolly.a").unlink()
    machine.apt("exit 1")
    with pytest.raises(UsageError, match=r"apt-get install clang-19 lld-19 libpolly-19-dev, or add `install`$"):
        run_build(tmp_path, tree)
    (machine.programs / "apt-get").unlink()
    with pytest.raises(
        UsageError, match=r"libPolly.a \(Debian's libpolly-19-dev\); there is no apt-get here: .* `llvm_source` DIR"
    ):
        run_build(tmp_path, tree)


def test_a_library_of_no_known_package_is_named(machine: Machine, tmp_path: Path, tree: Path) -> None:
    machine.script("llvm-config-19", LLVM_CONFIG.replace("VERSION", "19.1.7").replace("-lm", "-lm -lodd"))
    machine.apt("exit 1")
    with pytest.raises(UsageError, match=r"missing libodd\.so; no package is known to have libodd\.so: install it$"):
        run_build(tmp_path, tree, install=True)


INSTALLING_APT = """
case "$*" in
  update) echo "E: The repository does not have a Release file." >&2; exit 100 ;;
  *)
    [ -e ROOT/refuse ] && { echo "E: Unable to locate package libpolly-19-dev" >&2; exit 100; }
    : >ROOT/lib/libPolly.a ;;
esac
"""


@pytest.fixture
def installing(machine: Machine) -> Machine:
    (machine.root / "lib" / "libPolly.a").unlink()
    machine.apt(INSTALLING_APT)
    env = machine.programs / "env"
    env.symlink_to(shutil.which("env", path="/usr/bin:/bin") or "")
    machine.script("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    return machine


def test_what_is_missing_is_installed_when_asked(installing: Machine, tmp_path: Path, tree: Path) -> None:
    made = run_build(tmp_path, tree, install=True)
    assert [phase.detail for phase in made.phases if phase.name == "packages"] == ["1 package"]
    assert (installing.root / "apt-calls").read_text().splitlines() == [
        "update",
        "install -y --no-install-recommends libpolly-19-dev",
    ]


def test_without_the_headers_the_usual_packages_are_named_at_once(machine: Machine, tmp_path: Path, tree: Path) -> None:
    """Extension.def, which tells of Polly, comes with the headers."""
    shutil.rmtree(machine.root / "include" / "llvm")
    (machine.root / "lib" / "libPolly.a").unlink()
    machine.apt("exit 1")
    machine.script("dpkg-query", "#!/bin/sh\nexit 1\n")
    with pytest.raises(UsageError) as caught:
        run_build(tmp_path, tree)
    assert str(caught.value).endswith(
        "missing TFUtils.h; apt-get install llvm-19-dev libpolly-19-dev zlib1g-dev libzstd-dev libxml2-dev libz3-dev,"
        " or add `install`"
    )


def test_what_comes_to_light_after_an_installation_is_installed_too(
    installing: Machine, tmp_path: Path, tree: Path
) -> None:
    """dpkg takes Polly for installed, so only the headers are asked for; they tell that its library is not there."""
    shutil.move(installing.root / "include", installing.root / "saved")
    (installing.root / "include").mkdir()
    for name in ("cp", "ls"):
        (installing.programs / name).symlink_to(shutil.which(name, path="/usr/bin:/bin") or "")
    installing.apt(
        'case "$*" in *libpolly*) : >ROOT/lib/libPolly.a ;; *llvm-19-dev*) cp -r ROOT/saved/. ROOT/include/ ;; esac'
    )
    installing.script("dpkg-query", '#!/bin/sh\nshift 3\nfor p in "$@"; do echo "installed $p 1.0"; done\n')
    made = run_build(tmp_path, tree, install=True)
    assert [phase.detail for phase in made.phases if phase.name == "packages"] == ["3 packages"]
    assert (installing.root / "apt-calls").read_text().splitlines() == [
        "update",
        "install -y --no-install-recommends llvm-19-dev libclang-19-dev",
        "update",
        "install -y --no-install-recommends libpolly-19-dev",
    ]


def test_packages_that_cannot_be_installed_are_an_error(installing: Machine, tmp_path: Path, tree: Path) -> None:
    installing.write("refuse")
    with pytest.raises(ToolError, match="exit code 100: E: Unable to locate package libpolly-19-dev"):
        run_build(tmp_path, tree, install=True)
    assert not (tmp_path / "out").exists()


# The build.


def test_a_build_makes_a_toolchain_and_the_second_finds_it(machine: Machine, tmp_path: Path, tree: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    made = run_build(tmp_path, tree, progress=lambda *step: seen.append(step))
    out = tmp_path / "out"
    assert (made.output, made.version, made.fetched_bytes) == (out, "19.1.7", 0)
    assert made.tools == (out / "bin/clang", out / "bin/opt", out / "bin/llc")
    assert files_of(out) == ["bin/clang", "bin/clang++", "bin/llc", "bin/opt", "lib/clang", "toolchain.json"]
    assert all(tool.read_text() == "whole" for tool in made.tools)
    assert (out / "bin/clang++").readlink() == Path("clang")
    assert (out / "lib/clang").readlink() == machine.root / "lib/clang"
    assert [(phase.name, phase.detail) for phase in made.phases] == [
        ("look", "LLVM 19.1.7"),
        ("unpack", "12 files"),
        ("compile", f"{COMPILED} files"),
        ("link", "3 tools"),
        ("probe", "2 observations"),
    ]
    assert {phase for phase, _, _ in seen} <= set(PHASES)
    assert [done for phase, done, total in seen if phase == "compile" and total == COMPILED] == [*range(COMPILED + 1)]
    assert len(machine.calls()) == COMPILED + 3

    again = run_build(tmp_path, tree)
    assert [(phase.name, phase.detail) for phase in again.phases] == [
        ("look", "LLVM 19.1.7"),
        ("probe", "already there, 2 observations"),
    ]
    assert machine.calls() == []


def test_without_an_output_the_toolchain_is_in_the_cache(machine: Machine, tmp_path: Path, tree: Path) -> None:
    made = build_devmode(None, llvm_source=tree, cache=tmp_path / "cache", jobs=1, progress=ignore)
    assert made.output == tmp_path / "cache" / "toolchains" / "devmode-19"
    assert made.tools[0].exists()


@pytest.mark.parametrize("what", ["source", "header", "llvm", "tool", "description", "headers", "clang++"])
def test_what_was_made_of_something_else_is_made_again(what: str, machine: Machine, tmp_path: Path, tree: Path) -> None:
    run_build(tmp_path, tree)
    machine.calls()
    compiled = {
        "source": ["driver.cpp"],
        "header": ["MLRegAllocEvictAdvisor.cpp"],
        "tool": [],
        "description": [],
        "headers": [],
        "clang++": [],
        "llvm": None,
    }[what]
    if what == "source":
        (tree / "clang/tools/driver/driver.cpp").write_text("changed, with a ToolContext")
    elif what == "header":
        (tree / "llvm/lib/CodeGen/RegAllocGreedy.h").write_text("changed")
    elif what == "tool":
        (tmp_path / "out/bin/opt").write_text("changed")
    elif what == "headers":
        (tmp_path / "out/lib/clang").unlink()
        (tmp_path / "out/lib/clang").symlink_to(tmp_path / "gone")
    elif what == "clang++":
        (tmp_path / "out/bin/clang++").unlink()
    elif what == "description":
        (tmp_path / "out/toolchain.json").write_text('{"format": "mlgo-corpus-devmode"}')
    else:
        text = (tree / "cmake/Modules/LLVMVersion.cmake").read_text()
        (tree / "cmake/Modules/LLVMVersion.cmake").write_text(text.replace("PATCH 7", "PATCH 8"))
        machine.llvm_config("llvm-config-19", "19.1.8")
    run_build(tmp_path, tree)
    calls = [name for name in machine.calls() if not name.startswith("link-")]
    assert len(calls) == COMPILED if compiled is None else calls == compiled
    assert (tmp_path / "out/bin/opt").read_text() == "whole"
    assert (tmp_path / "out/bin/clang++").exists()
    assert (tmp_path / "out/lib/clang").readlink() == machine.root / "lib/clang"


@pytest.mark.parametrize("name", ["notes.txt", "toolchain.json"])
def test_a_folder_of_somebody_elses_is_refused(name: str, machine: Machine, tmp_path: Path, tree: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("{}")
    with pytest.raises(
        UsageError, match=r"out: is not empty, and not a toolchain \(it has no toolchain\.json of ours\)"
    ):
        run_build(tmp_path, tree)
    assert files_of(tmp_path / "out") == [name]
    run_build(tmp_path, tree, force=True)
    assert (tmp_path / "out/bin/clang").exists()
    assert name == "toolchain.json" or (tmp_path / "out" / name).read_text() == "{}"


def test_a_file_as_output_is_refused(machine: Machine, tmp_path: Path, tree: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="out: expected a folder, found a file: name another `output`"):
        run_build(tmp_path, tree, force=True)


def objects_of(tmp_path: Path) -> list[str]:
    return files_of(tmp_path / "cache" / "devmode-build" / "llvm-19.1.7" / "objects")


def test_a_failing_compile_leaves_no_object_and_the_next_build_goes_on(
    machine: Machine, tmp_path: Path, tree: Path
) -> None:
    error = "TFUtils.h:1:2: error: no type named 'X'\n1 error generated."
    complaint = machine.write("fail/model_evaluator.cpp", error + "\n")
    with pytest.raises(ToolError) as caught:
        run_build(tmp_path, tree)
    assert str(caught.value).endswith(
        "clang++ 'compile model_evaluator.cpp': exit code 1: LLVM 19.1.7: TFUtils.h:1:2: error: no type named 'X'"
    )
    done = objects_of(tmp_path)
    assert all(name.endswith(".o") and not name.startswith("model_evaluator") for name in done)
    assert not (tmp_path / "out").exists()
    machine.calls()
    complaint.unlink()
    run_build(tmp_path, tree)
    assert len([name for name in machine.calls() if not name.startswith("link-")]) == COMPILED - len(done)


def test_a_failing_compile_stops_the_others(machine: Machine, tmp_path: Path, tree: Path) -> None:
    machine.write("hang/cc1_main.cpp")
    machine.write("fail/driver.cpp", "driver.cpp:1:1: error: no\n")
    begin = time.monotonic()
    with pytest.raises(ToolError, match=r"driver\.cpp:1:1: error: no"):
        run_build(tmp_path, tree)
    assert time.monotonic() - begin < 300
    assert objects_of(tmp_path) == []


def test_a_failing_link_leaves_nothing(machine: Machine, tmp_path: Path, tree: Path) -> None:
    complaint = machine.write("fail/link-opt", "ld.lld: error: undefined symbol: x\nclang: error: linker failed\n")
    with pytest.raises(ToolError, match=r"'link opt': exit code 1: LLVM 19\.1\.7: ld\.lld: error: undefined symbol: x"):
        run_build(tmp_path, tree)
    assert not (tmp_path / "out").exists()
    complaint.unlink()
    made = run_build(tmp_path, tree)
    assert ("compile", "already there") in [(phase.name, phase.detail) for phase in made.phases]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model_evaluator.cpp", "unable to make temporary file: No space left on device"),
        ("link-llc", "cannot open output file llc: No space left on device"),
        ("link-llc", "cannot open output file llc: Disk quota exceeded"),
        ("link-llc", "unable to execute command: Bus error"),
    ],
)
def test_a_full_disk_is_one_line(name: str, said: str, machine: Machine, tmp_path: Path, tree: Path) -> None:
    machine.write(f"fail/{name}", f"error: {said}\n")
    with pytest.raises(UsageError, match=r"no space left on the disk; .* run the same command again, it goes on"):
        run_build(tmp_path, tree)
    assert all(path.endswith(".o") for path in objects_of(tmp_path))
    assert not (tmp_path / "out").exists()


def test_what_fails_the_probe_is_not_put_in_place(
    machine: Machine, tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ToolError(("clang",), 0, "probe: no")

    monkeypatch.setattr(build, "probe_tools", fail)
    with pytest.raises(ToolError, match="probe: no"):
        run_build(tmp_path, tree)
    assert not (tmp_path / "out").exists()


def test_what_a_killed_build_left_is_no_obstacle(machine: Machine, tmp_path: Path, tree: Path) -> None:
    work = tmp_path / "cache/devmode-build/llvm-19.1.7"
    leftovers = [
        tmp_path / "out/.devmode.part/bin/clang",
        tmp_path / "out/.devmode.lock",
        work / "lock",
        work / "objects/x-0.o.1.part",
        work / "source.part/llvm/old",
    ]
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    run_build(tmp_path, tree)
    assert not any(path.exists() for path in leftovers)


# Locks.


def test_the_second_waits_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    events: list[str] = []
    waiting, entered = threading.Event(), threading.Event()

    def second() -> None:
        with locked(path, str(path), waiting=waiting.set):
            events.append("second")

    with locked(path, str(path), waiting=lambda: events.append("never")):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(30)
        assert not entered.wait(0.05)
        events.append("first")
    thread.join(30)
    assert events == ["first", "second"]
    assert not path.exists()


def test_many_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with locked(path, str(path), waiting=ignore):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most) == 1
    assert len(most) == 120


def test_two_builds_of_one_output_do_the_work_once(machine: Machine, tmp_path: Path, tree: Path) -> None:
    results: list[DevmodeBuild] = []
    waits = threading.Event()

    def told(stage: str, done: int, whole: int) -> None:
        if stage == "wait":
            waits.set()

    def work() -> None:
        results.append(run_build(tmp_path, tree, progress=told))

    threads = [threading.Thread(target=work) for _ in range(3)]
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / build._LOCK_NAME, "", waiting=lambda: None):
        for thread in threads:
            thread.start()
        waits.wait()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(machine.calls()) == COMPILED + 3
    details = sorted(result.phases[-1].detail for result in results)
    assert details == ["2 observations", "already there, 2 observations", "already there, 2 observations"]
    assert any(phase.name == "wait" for result in results for phase in result.phases)


# Release mode: with a policy, on a made-up machine


MAP = "include/llvm/Analysis/InlineModelFeatureMaps.h"
MODEL_TREE = {
    **TREE,
    "llvm/lib/Analysis/MLInlineAdvisor.cpp": "#ifdef LLVM_HAVE_TF_AOT_INLINERSIZEMODEL\n",
    "llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp": f"{CONDITION}mask progress",
}


def embedded(task: str = "inlining", **changes: Any) -> Embedded:
    policy = small_policy(task)
    made = Embedded(
        name=policy.name,
        digest=policy.digest,
        task=task,
        model=model_name(task),
        header=model_header(policy),
        features=tuple(spec.name for spec in policy.features),
    )
    return replace(made, **changes)


def build_release(
    tmp_path: Path, model: Embedded, *, output: str = "out", files: Mapping[str, str] = MODEL_TREE
) -> DevmodeBuild:
    tree = write_tree(tmp_path / "with-models", files)
    options: dict[str, Any] = {"llvm_source": tree, "cache": tmp_path / "cache", "jobs": 2, "progress": ignore}
    return build_devmode(tmp_path / output if output else None, embedded=model, **options)


@pytest.fixture
def release(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine.write(MAP, "M(int64_t, {1}, cost_estimate, callee_users)")
    monkeypatch.setattr(build, "probe_release", lambda *_, **__: None)
    return machine


def test_only_the_file_that_asks_the_policy_is_made_anew_for_another(release: Machine, tmp_path: Path) -> None:
    made = build_release(tmp_path, embedded())
    compiled = ["MLInlineAdvisor", "cc1_main", "clang-main", "driver", "llc", "opt"]
    assert [phase.detail for phase in made.phases if phase.name == "compile"] == [f"{len(compiled)} files"]
    description = json.loads((tmp_path / "out" / "toolchain.json").read_bytes())
    assert description["inputs"]["policy"] == "inlining-1.0"
    again = build_release(tmp_path, embedded())
    assert next(phase.detail for phase in again.phases if phase.name == "probe").startswith("already there")
    other = embedded(digest="f" * 64, header="// another")
    assert [phase.detail for phase in build_release(tmp_path, other).phases if phase.name == "compile"] == ["1 file"]
    (header,) = (tmp_path / "cache").glob("*/*/generated/models/ffff*/*")
    assert (header.name, header.read_text()) == ("InlinerSizeModel.h", "// another")
    on = build_release(tmp_path, replace(other, default_on=True))
    assert [phase.detail for phase in on.phases if phase.name == "compile"] == ["2 files"]  # cc1, and the one before it
    (wrapper,) = (tmp_path / "cache").glob("*/*/generated/policy-cc1_main.cpp")
    assert 'Words.push_back("-enable-ml-inliner=release")' in wrapper.read_text()
    assert 'Words.push_back("-ml-advisor-size-increase-threshold=1e9")' in wrapper.read_text()
    assert "IsDecided = true" in wrapper.read_text()
    build_release(tmp_path, embedded(digest="e" * 64, default_on=True, languages=("C",)))
    assert "IsDecided = false" in wrapper.read_text()
    assert 'Language : {"c", "cpp-output"}' in wrapper.read_text()


def test_llvm_22_takes_a_policy_although_it_has_no_development_mode(release: Machine, tmp_path: Path) -> None:
    (release.programs / "llvm-config-19").unlink()
    release.llvm_config("llvm-config-22", "22.1.8")
    tree = {name: text for name, text in MODEL_TREE.items() if "InlineSizeEstimatorAnalysis" not in name}
    tree["cmake/Modules/LLVMVersion.cmake"] = VERSION.replace("19", "22").replace("PATCH 7", "PATCH 8")
    release.apt("exit 1")
    with pytest.raises(UsageError, match=r"missing Options\.inc; apt-get install libclang-22-dev, or add `install`$"):
        build_release(tmp_path, embedded(), files=tree)
    shutil.move(release.root / "include/clang/Driver", release.root / "include/clang/Options")
    made = build_release(tmp_path, embedded(), files=tree)
    assert made.version == "22.1.8"
    for name in ("llvm/lib/Analysis/MLInlineAdvisor.cpp", "llvm/tools/opt/opt.cpp"):
        lacking = {**tree}
        del lacking[name]
        shutil.rmtree(tmp_path / "with-models")
        with pytest.raises(UsageError, match=rf"no {name} that tests LLVM_HAVE_TF_AOT_, which LLVM 16 to 22 have$"):
            build_release(tmp_path, embedded(digest="e" * 64), files=lacking)
    release.llvm_config("llvm-config-23", "23.1.0")
    with pytest.raises(UsageError, match=r"is LLVM 23\.1\.0, expected 16 to 22: others have no place for a model"):
        installed.look("llvm-config-23", release=True)


def test_a_compiler_with_a_policy_linked_in_is_listed(
    release: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlgo_corpus.toolchain.probe_compiler", lambda *_, **__: None)
    monkeypatch.setattr("mlgo_corpus.toolchain.probe_toolchains", lambda *_, **__: ())
    tree, cache = write_tree(tmp_path / "with-models", MODEL_TREE), tmp_path / "cache"
    policy = small_policy("inlining")
    policy.save(tmp_path / "policy")
    for name, default_on in (("plain", False), ("on", True)):
        options = {"mode": "release", "policy": str(tmp_path / "policy"), "default_on": default_on, "jobs": 1}
        build_toolchain(tmp_path / name, llvm_source=tree, cache=cache, **options)  # type: ignore[arg-type]
    plain, on = list_released(cache=cache)
    assert (plain.output, plain.policy, plain.task) == (tmp_path / "plain", policy.name, "inlining")
    assert (plain.policy_digest, plain.version, plain.default_on) == (policy.digest, "19.1.7", False)
    assert on == replace(plain, output=tmp_path / "on", default_on=True)
    env = {"MLGO_CORPUS_CACHE": str(cache), "COLUMNS": "200"}
    shown = CliRunner().invoke(app, ["toolchain", "list"], env=env).stdout
    listed = [" ".join(line.split()) for line in shown.splitlines()]
    start = f"{policy.name} 19.1.7 linked in,"
    assert f"{plain.clang} {start} with -mllvm -enable-ml-inliner=release" in listed
    assert f"{on.clang} {start} at -Os and -Oz" in listed
    listed = json.loads(CliRunner().invoke(app, ["toolchain", "list", "--json"], env=env).stdout)["released"]
    assert [one["policy_digest"] for one in listed] == [policy.digest, policy.digest]
    shutil.rmtree(tmp_path / "plain")
    assert list_released(cache=cache) == (on,)


def test_a_policy_for_eviction_is_compiled_into_the_allocator(release: Machine, tmp_path: Path) -> None:
    build_release(tmp_path, embedded("regalloc-eviction"))
    assert len(list((tmp_path / "cache").glob("*/*/objects/MLRegAllocEvictAdvisor-*.o"))) == 1
    assert not list((tmp_path / "cache").glob("*/*/objects/MLInlineAdvisor-*.o"))


def test_what_cannot_be_linked_in_is_refused(release: Machine, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs the feature 'cookies', which LLVM 19\.1\.7 does not have"):
        build_release(tmp_path, embedded(features=("cost_estimate", "cookies")))
    with pytest.raises(UsageError, match="LLVM has no place for a policy for regalloc-priority in a compiler"):
        build_release(tmp_path, replace(embedded(), task="regalloc-priority", model="RegAllocPriorityModel"))
    with pytest.raises(UsageError, match="output: a compiler with a policy in it needs a folder of its own"):
        build_release(tmp_path, embedded(), output="")
    assert not (tmp_path / "out").exists()
    for options, said in (
        ({"mode": "release"}, "policy: is missing"),
        ({"policy": "x"}, "policy: is for `mode` release"),
        ({"default_on": True}, "default_on: is for `mode` release"),
        ({"mode": "fast"}, "mode fast: expected one of development, release"),
    ):
        with pytest.raises(UsageError, match=f"^{said}"):
            build_toolchain(tmp_path / "out", cache=tmp_path / "cache", **options)  # type: ignore[arg-type]


# The real compiler.


@pytest.fixture(scope="module")
def lua(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("lua")
    unpack("lua-clang19", folder)
    extract_corpus([folder / "lua"], folder / "corpus")
    return Corpus.open(folder / "corpus")


LUA = ("lapi", "linit", "lopcodes", "ltable", "lvm", "lzio")


def module_of(corpus: Corpus, name: str) -> tuple[list[str], str]:
    (module,) = (module for module in corpus if Path(module.name).name == f"{name}.o")
    command = [word for word in module.command() if not word.startswith("-fembed-bitcode")]
    return [*command, "-x", "ir", str(module.bitcode_path)], module.name


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False)


def replay(clang: Path | str, corpus: Corpus, name: str, output: Path, *options: str) -> bytes:
    command, _ = module_of(corpus, name)
    done = run(clang, *command, *options, "-o", output)
    assert (done.returncode, done.stderr) == (0, "")
    return output.read_bytes()


@pytest.mark.llvm
@pytest.mark.parametrize("name", LUA)
def test_logs_and_objects_equal_llvms_own(name: str, devmode: Path, llvm19: Llvm, lua: Corpus, tmp_path: Path) -> None:
    clang = devmode / "bin" / "clang"
    stock = replay(llvm19.clang, lua, name, tmp_path / "stock.o")
    expected = {task.name: (DATA / "training-logs" / f"{task.name}.{name}.log").read_bytes() for task in TASKS}

    def options(task: Task, prefix: str) -> tuple[str, ...]:
        return for_clang(task.log_options(f"{tmp_path}/{prefix}{task.name}"))

    for task in TASKS:
        assert replay(clang, lua, name, tmp_path / "own.o", *options(task, "one-")) == stock
        assert (tmp_path / f"one-{task.name}").read_bytes() == expected[task.name], task.name
    together = [word for task in TASKS for word in options(task, "all-")]
    assert replay(clang, lua, name, tmp_path / "own.o", *together) == stock
    assert {task.name: (tmp_path / f"all-{task.name}").read_bytes() for task in TASKS} == expected


@pytest.mark.llvm
def test_opt_writes_the_vector_of_each_function(devmode: Path, lua: Corpus, tmp_path: Path) -> None:
    (module,) = (module for module in lua if module.name.endswith("lzio.o"))
    done = run(
        devmode / "bin" / "opt",
        "-passes=function(print<inliner-size-estimator>)",
        f"-ml-inliner-ir2native-model={tmp_path}/vectors",
        "-ml-inliner-ir2native-number-rows",
        module.bitcode_path,
        "-o",
        tmp_path / "out.bc",
    )
    assert done.returncode == 0
    header, *rows = (tmp_path / "vectors").read_text().splitlines()
    assert json.loads(header) == {
        "format": "ir2native-vectors",
        "version": 1,
        "llvm": "19.1.7",
        "type": "int32",
        "width": 214,
    }
    assert {len(row.split(",")) for row in rows} == {214}
    named = re.findall(r"size estimate for (\w+): (\d+)$", done.stderr, re.MULTILINE)
    assert [int(row) for _, row in named] == [*range(len(rows))]
    assert {"luaZ_fill", "luaZ_init", "luaZ_read"} <= {name for name, _ in named}
    blocks = dict(zip((name for name, _ in named), (int(row.split(",")[1]) for row in rows), strict=True))
    assert blocks["luaZ_init"] == 1
    assert blocks["luaZ_read"] > 5


@pytest.mark.llvm
def test_vectors_that_cannot_be_written_are_one_line(devmode: Path, lua: Corpus, tmp_path: Path) -> None:
    (module,) = (module for module in lua if module.name.endswith("lzio.o"))
    estimator = "-passes=function(print<inliner-size-estimator>)"
    model = f"-ml-inliner-ir2native-model={tmp_path}/none/vectors"
    done = run(devmode / "bin" / "opt", estimator, model, module.bitcode_path, "-o", tmp_path / "out.bc")
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if "cannot write" in line]
    reason = f"cannot write '{tmp_path}/none/vectors': No such file or directory"
    assert errors == [f"LLVM ERROR: -ml-inliner-ir2native-model: {reason}"]


def model_of(policy: LearnedPolicy, folder: Path) -> Path:
    """Give the folder of a policy that development mode reads."""
    policy.save(folder / "policy")
    compile_policy(folder / "policy", folder / "model")
    return folder / "model"


@pytest.mark.llvm
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_policy_decides_and_is_logged(task: Task, devmode: Path, lua: Corpus, tmp_path: Path) -> None:
    features, records = real_observations(task.name)
    features = tuple(spec for spec in features if spec.name != "inlining_default")  # which is no input of a model
    trees = random_trees(len(features), np.random.default_rng(4), at=columns_of(features, records))
    policy = policy_of(task.name, features, trees)
    options = (*task.log_options(f"{tmp_path}/log"), *task.model_options(str(model_of(policy, tmp_path))))
    replay(devmode / "bin" / "clang", lua, "ltable", tmp_path / "own.o", *for_clang(options))
    columns = read_log(tmp_path / "log").to_numpy()
    expected = policy.decide({spec.name: columns[spec.name] for spec in policy.features})
    assert len(expected) > 5
    np.testing.assert_array_equal(columns[task.decision].ravel(), expected)


@pytest.mark.llvm
def test_a_policy_is_refused_in_one_line(devmode: Path, lua: Corpus, tmp_path: Path) -> None:
    task = TASKS[0]
    command, _ = module_of(lua, "lzio")
    good = model_of(small_policy(), tmp_path)
    model = tmp_path / "tried"

    def error(**files: Path) -> str:
        shutil.rmtree(model, ignore_errors=True)
        model.mkdir()
        for path in files.values():
            shutil.copy(path, model)
        options = for_clang((f"{task.advisor}=development", *task.model_options(str(model))))
        done = run(devmode / "bin" / "clang", *command, *options, "-o", tmp_path / "x.o")
        assert done.returncode != 0
        return next(line for line in done.stderr.splitlines() if "error: " in line)

    spec = good / "output_spec.json"
    assert error() == f"error: Error opening output specs file: {model}/output_spec.json : No such file or directory"
    assert error(spec=spec).startswith(f"error: cannot load the policy: {model}/policy.so: cannot open shared object")
    other = tmp_path / "other"
    other.mkdir()
    (other / "policy.so").write_bytes(b"none")
    assert error(spec=spec, library=other / "policy.so").startswith(f"error: cannot load the policy: {model}/policy.so")
    for number, (features, said) in enumerate(
        (
            (("cost_estimate", "cookies"), "needs the feature 'cookies', which this compiler does not have"),
            (("cost_estimate:float", "threshold"), "has another type or size for the feature 'cost_estimate'"),
        )
    ):
        specs = tuple(TensorSpec(*name.split(":")) for name in features)
        (tmp_path / str(number)).mkdir()
        bad = model_of(policy_of(task.name, specs, small_policy().model), tmp_path / str(number))
        assert error(spec=spec, library=bad / "policy.so").startswith(f"error: the policy inlining-1.0 {said}")
    tensor = {"name": "decision", "port": 0, "type": "float", "shape": [1]}
    (other / "output_spec.json").write_text(json.dumps([{"logging_name": task.decision, "tensor_spec": tensor}]))
    assert error(spec=other / "output_spec.json", library=good / "policy.so") == (
        "error: the policy inlining-1.0 does not make the one decision that output_spec.json says"
    )


@pytest.mark.llvm
def test_a_toolchain_compiles_and_links_a_program(devmode: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text(
        '#include <cstddef>\n#include <stdarg.h>\nextern "C" int puts(const char *);\nint main() { puts("hello"); }\n'
    )
    assert run(devmode / "bin" / "clang++", source, "-o", tmp_path / "a").stderr == ""
    assert run(tmp_path / "a").stdout == "hello\n"


@pytest.mark.llvm
def test_the_probe_finds_all_logs(devmode: Path, llvm19: Llvm, tmp_path: Path) -> None:
    found = probe_tools(devmode / "bin", version="19.1.7", stock_clang=Path(llvm19.clang), scratch=tmp_path)
    assert set(found) == {
        *(f"clang {task.name}" for task in TASKS),
        "opt inlining",
        "llc regalloc-eviction",
        "llc regalloc-priority",
        "opt ir2native rows",
    }
    assert min(found.values()) >= 1


@pytest.mark.llvm
def test_the_probe_refuses_other_compilers(devmode: Path, llvm19: Llvm, llvm22: Llvm, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"expected LLVM 19\.1\.8, --version names another"):
        probe_tools(devmode / "bin", version="19.1.8", stock_clang=Path(llvm19.clang), scratch=tmp_path)
    with pytest.raises(ToolError, match="with the inlining log, the object differs from"):
        probe_tools(devmode / "bin", version="19.1.7", stock_clang=Path(llvm22.clang), scratch=tmp_path)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in compilation.TOOLS:
        (tools / tool).symlink_to(Path(llvm19.clang).resolve().with_name(tool))
    with pytest.raises(ToolError, match=r"-training-log=clang\.log .*: exit code 1: "):
        probe_tools(tools, version="19.1.7", stock_clang=Path(llvm19.clang), scratch=tmp_path)
