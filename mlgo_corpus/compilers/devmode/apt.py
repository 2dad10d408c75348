"""Fetch a Debian source package with apt, without changing the system's apt.

apt runs with its own lists in a folder of ours, and with the system's sources converted to sources of source packages:
so the machine's mirror, proxy and keys are used (``man sources.list``, ``man apt.conf``). apt checks downloads against
the signed lists; the tarball is checked once more here against the package's description (``.dsc``), because it may
have been in the folder for long.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.errors import FormatError, ToolError, UsageError

SYSTEM_APT = Path("/etc/apt")
OS_RELEASE = Path("/etc/os-release")

# Lists and the tarball are 175 MB; a line of one megabit per second needs half an hour.
_FETCH_TIMEOUT_S = 2 * 3600.0
# The interval between reports of the download's progress.
_POLL_S = 0.2

# Used if a Debian's own sources are unusable, such as a list of packages on a disc: the archive, and its keys.
_DEBIAN_ARCHIVE = """\
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: {codename} {codename}-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://deb.debian.org/debian-security
Suites: {codename}-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""

_ORIGINAL = re.compile(r"_(?P<version>[^_]+)\.orig\.tar\.(xz|gz|bz2)")
# A line of `apt-get source --print-uris`: 'URI' file size hash.
_URI_LINE = re.compile(r"'[^']+' (?P<file>\S+) (?P<size>\d+) ")
_FETCHED = re.compile(r"^Fetched ([\d.,]+) ([kMGT]?)B in ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _FetchedSource:
    """A source package's tarball of the original sources, with the sha256 in the package's description.

    ``version`` is the package's; ``fetched_bytes`` includes the lists.
    """

    tarball: Path
    sha256: str
    version: str
    fetched_bytes: int


def fetch_source(name: str, version: str, folder: Path, progress: Callable[[int, int], None]) -> _FetchedSource:
    """Fetch the source package that an installed package was built from into ``folder``.

    If the archive has only another revision with the same original sources, use that. While the tarball is fetched,
    ``progress`` is called with the number of bytes fetched and the total.

    Raises:
        UsageError: there is no apt-get, apt has no such sources, or there is no network to get them.
        ToolError: the download failed.
        FormatError: the tarball does not match the package's description.
    """
    if shutil.which("apt-get") is None:
        raise UsageError(
            "fetching LLVM's sources needs apt-get, which is not installed; name a folder: `llvm_source` DIR"
        )
    problem = "this machine has no apt sources"
    for sources in _iter_source_lists():
        apt = _Apt(folder, sources)
        fetched_bytes, update_problem = apt.update()
        try:
            request, files = apt.find(name, version)
        except ToolError as error:
            problem = update_problem or _reason(error)
            continue
        return apt.download(request, files, fetched_bytes, progress)
    raise UsageError(f"apt cannot get the sources of {name} {version}: {problem}; name a folder: `llvm_source` DIR")


def fetch_tarballs(packages: Sequence[str], folder: Path) -> None:
    """Fetch the tarballs of the original sources of some source packages into ``folder``; apt checks them.

    Raises:
        UsageError: there is no apt-get, or apt has no such sources.
        ToolError: the download failed.
    """
    if shutil.which("apt-get") is None:
        raise UsageError("fetching sources needs apt-get, which is not installed")
    problem = ToolError(("apt-get",), 0, "this machine has no apt sources")
    for sources in _iter_source_lists():
        apt = _Apt(folder, sources)
        apt.update()
        try:
            apt.download_tarballs(packages)
        except ToolError as error:
            problem = error
            continue
        return
    raise problem


def deb822_sources(text: str) -> Iterator[str]:
    """Yield a stanza for source packages for each enabled stanza of a ``.sources`` file; keep options."""
    # Comments may be inside a stanza, also between the lines of a field.
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n{2,}", "\n".join(lines)):
        fields = re.findall(r"^([^\s:]+)\s*:(.*(?:\n[ \t].*)*)$", stanza, re.MULTILINE)
        values = {key.lower(): value.strip() for key, value in fields}
        if "uris" not in values or values.get("enabled", "yes").lower() in ("no", "false", "off", "0", "without"):
            continue
        kept = [f"{key}:{value}" for key, value in fields if key.lower() not in ("types", "enabled")]
        yield "\n".join(["Types: deb-src", *kept]) + "\n"


def one_line_sources(text: str) -> Iterator[str]:
    """Yield a line for source packages for each line of a ``.list`` file; keep options."""
    for line in text.splitlines():
        found = re.match(r"\s*deb(-src)?\s+(\S.*?)\s*(#.*)?$", line)
        if found:
            yield f"deb-src {found[2]}\n"


def _iter_source_lists() -> Iterator[dict[str, str]]:
    """Yield contents for apt's folder of sources, as text by file name; the system's own first."""
    own = _system_sources(SYSTEM_APT)
    if own:
        yield own
    with suppress(OSError):
        release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', OS_RELEASE.read_text(encoding="utf-8"), re.MULTILINE))
        if release.get("ID") == "debian" and (codename := release.get("VERSION_CODENAME")):
            yield {"debian.sources": _DEBIAN_ARCHIVE.format(codename=codename)}


def _system_sources(apt: Path) -> dict[str, str]:
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    stanzas: dict[str, None] = {}
    lines: dict[str, None] = {}
    for file in files:
        with suppress(OSError, UnicodeDecodeError):
            # apt ignores other suffixes as well.
            if file.suffix == ".list":
                lines |= dict.fromkeys(one_line_sources(file.read_text(encoding="utf-8")))
            elif file.suffix == ".sources":
                stanzas |= dict.fromkeys(deb822_sources(file.read_text(encoding="utf-8")))
    texts = {"system.sources": "\n".join(stanzas), "system.list": "".join(lines)}
    return {name: text for name, text in texts.items() if text}


class _Apt:
    """apt-get with its own lists, sources and cache in a folder."""

    def __init__(self, folder: Path, sources: dict[str, str]) -> None:
        self.folder = folder.absolute()
        parts, lists, cache = (self.folder / name for name in ("sources", "lists", "cache"))
        shutil.rmtree(parts, ignore_errors=True)
        for made in (parts, lists / "partial", cache / "archives" / "partial"):
            made.mkdir(parents=True, exist_ok=True)
        for name, text in sources.items():
            (parts / name).write_text(text, encoding="utf-8")
        options = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": str(parts),
            "Dir::State::lists": str(lists),
            "Dir::Cache": str(cache),
            "Acquire::Retries": "2",
        }
        if not _open_to_all(self.folder):
            # As root, apt downloads as the user _apt, who could not enter this folder.
            options["APT::Sandbox::User"] = "root"
        self.options = tuple(word for key, value in options.items() for word in ("-o", f"{key}={value}"))

    def update(self) -> tuple[int, str]:
        """Fetch the lists; return the bytes fetched, and the first error, if any."""
        try:
            done = self._run("update")
        except ToolError as error:
            # The list that is needed may be another one.
            return 0, _reason(error)
        failed = [line for line in done.stderr.splitlines() if line.startswith("W: Failed to fetch")]
        return _fetched_bytes(done.stdout.decode(errors="replace")), failed[0][3:] if failed else ""

    def find(self, name: str, version: str) -> tuple[str, dict[str, int]]:
        """Find a source package; return apt's name for it, and the sizes of its files by their names."""
        try:
            return self._files(f"{name}={version}")
        except ToolError as error:
            upstream = version.partition(":")[2] or version
            try:
                request, files = self._files(name)
            except ToolError:
                raise error from None
            found = [original["version"] for file in files if (original := _ORIGINAL.search(file))]
            if found != [upstream.rpartition("-")[0]]:
                raise ToolError(
                    error.argv, error.returncode, f"E: there is {' '.join(found) or 'nothing'}, not {version}"
                ) from None
            return request, files

    def _files(self, request: str) -> tuple[str, dict[str, int]]:
        answer = self._run("source", "--download-only", "--print-uris", request).stdout.decode(errors="replace")
        return request, {found["file"]: int(found["size"]) for found in _URI_LINE.finditer(answer)}

    def download(
        self, request: str, files: dict[str, int], fetched_bytes: int, progress: Callable[[int, int], None]
    ) -> _FetchedSource:
        """Fetch the files of a package; existing ones are checked and not fetched."""
        total = sum(files.values())
        stop = threading.Event()
        with ThreadPoolExecutor(1, thread_name_prefix="apt") as pool:
            running = pool.submit(self._run, "source", "--download-only", "-y", request, stop=stop)
            try:
                while not wait([running], _POLL_S).done:
                    progress(min(total, _bytes_there(self.folder, files)), total)
                done = running.result()
            except ToolError as error:
                reason = f"{_reason(error)}; name a folder or an archive: `llvm_source` DIR"
                raise ToolError(error.argv[:1], error.returncode, reason) from None
            finally:
                stop.set()
        progress(total, total)
        fetched_bytes += _fetched_bytes(done.stdout.decode(errors="replace"))
        (tarball,) = (name for name in files if _ORIGINAL.search(name))
        (description,) = (name for name in files if name.endswith(".dsc"))
        version, sha256 = _check_source(self.folder / description, self.folder / tarball)
        return _FetchedSource(self.folder / tarball, sha256, version, fetched_bytes)

    def download_tarballs(self, packages: Sequence[str]) -> None:
        """Fetch only the original sources of packages."""
        self._run("source", "--download-only", "--tar-only", "--only-source", "-y", *packages)

    def _run(self, *words: str, stop: threading.Event | None = None) -> ToolResult:
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        argv = ("apt-get", *self.options, *words)
        return run_tool(argv, cwd=self.folder, env=environment, timeout=_FETCH_TIMEOUT_S, stop=stop)


def _check_source(description: Path, tarball: Path) -> tuple[str, str]:
    """Compare a tarball with its package's description (``.dsc``); return the package's version and the sha256.

    Raises:
        FormatError: the description does not name the file, or another size or sha256.
    """
    text = description.read_text(encoding="utf-8", errors="replace")
    version = re.search(r"^Version: (\S+)$", text, re.MULTILINE)
    sums = re.search(r"^Checksums-Sha256:\s*\n((?: .*\n?)+)", text, re.MULTILINE)
    named = [line.split() for line in sums[1].splitlines()] if sums else []
    found = [words for words in named if len(words) == 3 and words[2] == tarball.name]
    if version is None or len(found) != 1:
        raise FormatError(f"expected a source package's description that names {tarball.name}", path=description)
    sha256, size = found[0][0], int(found[0][1])
    if (actual_size := tarball.stat().st_size) != size:
        raise FormatError(f"expected {size} bytes, as {description.name} says, found {actual_size}", path=tarball)
    if (actual := sha256_of(tarball)) != sha256:
        raise FormatError(f"expected sha256 {sha256}, as {description.name} says, found {actual}", path=tarball)
    return version[1], sha256


def sha256_of(path: Path) -> str:
    """Return a file's sha256 in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _reason(error: ToolError) -> str:
    """Return the line of apt's stderr that has the reason: the first error, or else the first line."""
    lines = [line.strip() for line in error.stderr.splitlines() if line.strip()]
    errors = [line[2:].strip() for line in lines if line.startswith("E:")]
    # The first error names a file; the last one is general.
    return (errors or lines or [str(error)])[0]


def _fetched_bytes(text: str) -> int:
    found = _FETCHED.search(text)
    if found is None:
        return 0
    return int(float(found[1].replace(",", "")) * 1000 ** " kMGT".index(found[2] or " "))


def _bytes_there(folder: Path, names: Sequence[str] | dict[str, int]) -> int:
    total = 0
    for name in names:
        # apt downloads to the file's own name or, as root, into `partial`.
        for path in (folder / name, folder / "partial" / name, folder / "cache" / "archives" / "partial" / name):
            with suppress(OSError):
                total += path.stat().st_size
    return total


def _open_to_all(folder: Path) -> bool:
    """Return True if every user may enter the folder."""
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))
