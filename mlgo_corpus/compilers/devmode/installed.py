"""The installed parts of an LLVM, those that a development-mode build needs, and the Debian packages that have them.

llvm-config prints where the libraries should be, not whether they exist: it names libPolly.a, which is in a package of
its own, without looking for it, and so the link would fail after a minute of compiling. `find_missing` checks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.errors import ToolError, UsageError

DEVMODE_MAJOR: Final = 19
"""The LLVM of which a development-mode compiler is usually made: the version that this is tested with."""

# The others have the same classes and options.
# LLVM 15 has no TFLite, only TensorFlow; LLVM 22 has no InlineSizeEstimatorAnalysis, which development mode needs.
_DEVELOPMENT_MAJORS = (DEVMODE_MAJOR, 21, 20, 18, 17, 16)
# Those that a model can be linked into.
_RELEASE_MAJORS = (DEVMODE_MAJOR, 22, 21, 20, 18, 17, 16)
# The first LLVM whose clang has its options in a library of their own.
_OPTIONS_MAJOR = 22

# llvm-config and dpkg-query answer in milliseconds, on a slow disk in seconds.
_ASK_TIMEOUT_S = 60.0
# A mirror may be slow; all packages of an LLVM are about 200 MB.
_INSTALL_TIMEOUT_S = 3600.0

# The Debian packages of the libraries that LLVM's libraries are linked with, by the library's name.
_SYSTEM_PACKAGES = {
    "z": "zlib1g-dev",
    "zstd": "libzstd-dev",
    "xml2": "libxml2-dev",
    "z3": "libz3-dev",
    "tinfo": "libncurses-dev",
    "ffi": "libffi-dev",
    "edit": "libedit-dev",
}
# The packages of the libraries that Debian's LLVM 19 is linked with, used when there is no llvm-config to ask.
_USUAL_SYSTEM_PACKAGES = ("zlib1g-dev", "libzstd-dev", "libxml2-dev", "libz3-dev")

_VERSION = re.compile(r"(\d+)\.\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Missing:
    """A file that is needed and does not exist, and its Debian package; empty if unknown."""

    file: str
    package: str


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed LLVM, as its llvm-config describes it.

    ``version`` has numbers only (``19.1.7``). ``packages`` pairs Debian's packages with their versions; it is empty if
    dpkg does not know them.
    """

    llvm_config: Path
    version: str
    tools: Path
    libraries: Path
    headers: Path
    packages: tuple[tuple[str, str], ...]

    @property
    def major(self) -> int:
        """The major version, which is in the names of Debian's packages."""
        return int(self.version.partition(".")[0])

    @property
    def clang(self) -> Path:
        """The stock clang."""
        return self.tools / "clang"

    @property
    def clangxx(self) -> Path:
        """The stock clang++."""
        return self.tools / "clang++"

    def ask(self, *words: str) -> list[str]:
        """Run llvm-config, and return the words of its output."""
        return shlex.split(_run(str(self.llvm_config), *words).stdout.decode(errors="replace"))

    def compile_flags(self) -> tuple[str, ...]:
        """Return the flags that the libraries' headers need, without folders of headers."""
        flags = [flag for flag in self.ask("--cxxflags") if not flag.startswith("-I")]
        if self.ask("--has-rtti") != ["YES"]:
            flags.append("-fno-rtti")
        return tuple(flags)

    def find_missing(self) -> tuple[Missing, ...]:
        """Return the files that a build needs and does not find."""
        gone = [Missing(str(file), package) for file, package in self._needed() if not file.exists()]
        # Only the driver knows where the linker looks, and only llvm-config with the libraries knows what it needs.
        if not gone:
            gone = [Missing(file, package) for file, package in self._missing_system_libraries()]
        elif not self._extensions.exists():
            # The rest is known only when these exist; to avoid installing twice, add the usual packages.
            others = (_version_packages(self.major)[-1], *_USUAL_SYSTEM_PACKAGES)
            there = dict(_package_versions(others))
            gone += [Missing("", package) for package in others if package not in there]
        return tuple(gone)

    @property
    def _extensions(self) -> Path:
        """The file in which LLVM's CMake lists the extensions that are linked into opt and clang."""
        return self.headers / "llvm" / "Support" / "Extension.def"

    def _needed(self) -> list[tuple[Path, str]]:
        clang, lld, llvm_dev, clang_dev, polly = _version_packages(self.major)
        options = "Options" if self.major >= _OPTIONS_MAJOR else "Driver"
        needed = [
            (self.clangxx, clang),
            (self.tools / "ld.lld", lld),
            (self.libraries / "libLLVMAnalysis.a", llvm_dev),
            (self.headers / "llvm" / "Analysis" / "Utils" / "TFUtils.h", llvm_dev),
            (self.libraries / "libclangFrontendTool.a", clang_dev),
            (self.headers / "clang" / options / "Options.inc", clang_dev),
        ]
        if self._extensions.exists() and "HANDLE_EXTENSION(Polly)" in self._extensions.read_text(encoding="utf-8"):
            needed += [(self.libraries / "libPolly.a", polly), (self.libraries / "libPollyISL.a", polly)]
        return needed

    def _missing_system_libraries(self) -> list[tuple[str, str]]:
        gone = []
        for word in self.ask("--link-static", "--system-libs"):
            if word.startswith("-l"):
                name = word[2:]
                # New C libraries have some parts, such as librt, as .a only.
                found = self._linker_finds(f"lib{name}.so") or self._linker_finds(f"lib{name}.a")
            else:
                name = Path(word).name.removeprefix("lib").partition(".")[0]
                found = Path(word).is_file()
            if not found:
                gone.append((f"lib{name}.so", _SYSTEM_PACKAGES.get(name, "")))
        return gone

    def _linker_finds(self, file: str) -> bool:
        # clang prints the bare name if there is no such file.
        answer = _run(str(self.clangxx), f"-print-file-name={file}").stdout.decode(errors="replace").strip()
        return Path(answer).is_file()


def look(llvm_config: str | None, *, release: bool = False) -> tuple[Installed | None, tuple[Missing, ...]]:
    """Find an LLVM and its missing files; None instead of the LLVM if no usable version is installed.

    Without a name, use the first usable version of which nothing is missing, else the first that is installed.
    ``release``: it is to have a model linked in, not development mode.

    Raises:
        UsageError: there is no such program, or its LLVM's version is not usable.
        ToolError: the program failed.
    """
    majors = _RELEASE_MAJORS if release else _DEVELOPMENT_MAJORS
    first: tuple[Installed, tuple[Missing, ...]] | None = None
    for program in _iter_llvm_configs(llvm_config, majors):
        installed = _read_installed(program)
        if installed.major not in majors:
            if llvm_config is None:
                continue
            lacking = "place for a model" if release else "development mode"
            raise UsageError(
                f"{llvm_config} is LLVM {installed.version}, expected {min(majors)} to {max(majors)}:"
                f" others have no {lacking} that can be built from their libraries"
            )
        missing = installed.find_missing()
        first = first or (installed, missing)
        if not missing:
            return installed, missing
    return first or (None, _missing_of_everything(_major_of_name(llvm_config, majors)))


def _iter_llvm_configs(name: str | None, majors: Sequence[int]) -> list[Path]:
    names = [name] if name is not None else [*(f"llvm-config-{major}" for major in majors), "llvm-config"]
    return [Path(path) for path in map(shutil.which, names) if path is not None]


def _major_of_name(name: str | None, majors: Sequence[int]) -> int:
    """Return the major version whose packages have this llvm-config."""
    if name is None:
        return majors[0]
    named = re.fullmatch(r"llvm-config-(\d+)", name)
    if named is None or int(named[1]) not in majors:
        raise UsageError(f"no program {name}; name another `llvm_config`, such as llvm-config-{majors[0]}")
    return int(named[1])


def _read_installed(llvm_config: Path) -> Installed:
    """Return the installed LLVM that an llvm-config describes.

    Raises:
        UsageError: the program is not an llvm-config.
        ToolError: the program failed.
    """
    # All in one process.
    words = ("--version", "--bindir", "--libdir", "--includedir")
    lines = _run(str(llvm_config), *words).stdout.decode(errors="replace").splitlines()
    version = _VERSION.match(lines[0]) if len(lines) == len(words) else None
    if version is None:
        raise UsageError(f"{llvm_config}: not an llvm-config: expected a version and three folders, got {lines[:4]}")
    tools, libraries, headers = (Path(line.strip()) for line in lines[1:])
    packages = _package_versions(_version_packages(int(version[1])))
    return Installed(llvm_config, version[0], tools, libraries, headers, packages)


def _missing_of_everything(major: int) -> tuple[Missing, ...]:
    """Return what a build needs if nothing is installed."""
    packages = (*_version_packages(major), *_USUAL_SYSTEM_PACKAGES)
    return (Missing(f"llvm-config-{major}", packages[2]), *(Missing("", package) for package in packages))


def package_names(missing: Sequence[Missing]) -> list[str]:
    """Return the packages, each once, in order of appearance."""
    return list(dict.fromkeys(item.package for item in missing if item.package))


def missing_error(what: str, missing: Sequence[Missing]) -> UsageError:
    """Return an error about missing files, with how to get them on this machine; ``what`` begins the message."""
    files = [item for item in missing if item.file]
    if shutil.which("apt-get") is None:
        named = ", ".join(f"{item.file} (Debian's {item.package or 'package is not known'})" for item in files)
        return UsageError(
            f"{what}: missing {named}; there is no apt-get here: install LLVM's and clang's static libraries and"
            " headers another way, and name a folder of LLVM's sources: `llvm_source` DIR"
        )
    named = ", ".join(Path(item.file).name for item in files)
    packages = package_names(missing)
    if unknown := [item.file for item in files if not item.package]:
        return UsageError(f"{what}: missing {named}; no package is known to have {', '.join(unknown)}: install it")
    return UsageError(f"{what}: missing {named}; apt-get install {' '.join(packages)}, or add `install`")


def install_packages(packages: Sequence[str]) -> None:
    """Install Debian packages, as root or with sudo without a password.

    Raises:
        UsageError: there is no apt-get, or neither root nor sudo.
        ToolError: apt-get failed.
    """
    if shutil.which("apt-get") is None:
        message = f"needs apt-get, which is not installed; install {' '.join(packages)} another way"
        raise UsageError(message, option="install")
    root: tuple[str, ...] = ()
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise UsageError(f"needs root or sudo; as root: apt-get install {' '.join(packages)}", option="install")
        root = ("sudo", "-n")
    # sudo does not pass on the environment.
    apt = (*root, "env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "apt-get")
    try:
        run_tool((*apt, "update"), timeout=_INSTALL_TIMEOUT_S)
    except ToolError as error:
        update_error: ToolError | None = error  # perhaps only a source that is not needed: the next call shows it
    else:
        update_error = None
    try:
        run_tool((*apt, "install", "-y", "--no-install-recommends", *packages), timeout=_INSTALL_TIMEOUT_S)
    except ToolError as error:
        raise error from update_error


def source_package(installed: Installed) -> tuple[str, str]:
    """Return the name and the version of the Debian source package that the installed LLVM was built from.

    Raises:
        UsageError: dpkg does not know the LLVM.
    """
    development = _version_packages(installed.major)[2]
    try:
        answer = _run("dpkg-query", "-W", "-f", "${source:Package} ${source:Version}", development).stdout
    except ToolError:
        raise UsageError(
            f"LLVM {installed.version} is not Debian's {development}, so apt has no sources of it:"
            " name a folder: `llvm_source` DIR"
        ) from None
    name, _, version = answer.decode().strip().partition(" ")
    return name, version


def _version_packages(major: int) -> tuple[str, str, str, str, str]:
    return (
        f"clang-{major}",
        f"lld-{major}",
        f"llvm-{major}-dev",
        f"libclang-{major}-dev",
        f"libpolly-{major}-dev",
    )


def _package_versions(packages: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the versions of those packages that dpkg knows as installed."""
    if shutil.which("dpkg-query") is None:
        return ()
    argv = ("dpkg-query", "-W", "-f", "${db:Status-Status} ${binary:Package} ${Version}\n", *packages)
    try:
        answer = _run(*argv).stdout
    except ToolError:
        # It also fails if it does not know one of them; ask for each to find those that it knows.
        if len(packages) == 1:
            return ()
        return tuple(pair for package in packages for pair in _package_versions((package,)))
    words = [line.split(" ") for line in answer.decode().splitlines()]
    return tuple(sorted((name.partition(":")[0], version) for status, name, version in words if status == "installed"))


def _run(*argv: str) -> ToolResult:
    return run_tool(argv, env={**os.environ, "LC_ALL": "C"}, timeout=_ASK_TIMEOUT_S)
