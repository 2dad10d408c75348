"""Make a clang that says more with each question: a script around a stock clang, and a plugin that it loads.

``advisor.cpp`` says what the plugin does. The output::

    OUT/bin/clang       a script, which runs the stock clang with the plugin
    OUT/bin/clang++     a link to it, which is a C++ compiler by its name
    OUT/advisor.so      the plugin
    OUT/copies.bin      if it is made for a project: how many modules of it have each function, which the plugin tells
    OUT/extended.json   a description, see `Extended`
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mlgo_corpus import __version__
from mlgo_corpus.compilers.driver import drivers_of
from mlgo_corpus.compilers.find import PLUGIN_OPTION, Compiler, find_beside, loads_plugin, one_line
from mlgo_corpus.compilers.probe import PROBE_DATA, Toolchain, session_features
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.errors import MlgoCorpusError, ToolError, UsageError
from mlgo_corpus.files.folder import read_note, replaces_own, whole_folder
from mlgo_corpus.files.lock import locked
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.tasks import INLINING, find_task

_DESCRIPTION_NAME: Final = "extended.json"
PLUGIN_NAME: Final = "advisor.so"
COPIES_NAME: Final = "copies.bin"
_FILES = (_DESCRIPTION_NAME, PLUGIN_NAME, COPIES_NAME, "bin/clang", "bin/clang++")
_MADE_BY: Final = "toolchain extend"
_SOURCE: Final = Path(__file__).with_name("advisor.cpp")
# LLVM's headers are large: 5 seconds on a quiet core.
_TIMEOUT_S: Final = 300.0
# LLVM is built without RTTI, or does not need it.
_FLAGS: Final = ("-O1", "-fPIC", "-shared", "-fno-rtti", "-std=c++17", "-w")
OLDEST_EXTENDED: Final = 18
"""The oldest LLVM that can be extended."""
_HEADERS_VERSION: Final = re.compile(r'^#define LLVM_VERSION_STRING "(\d+\.\d+\.\d+)', re.MULTILINE)
_SCRIPT: Final = """\
#!/bin/sh
# clang {version} with a plugin, made by `mlgo-corpus {made_by}`. sha256 of what it loads: {digest}
case $1 in
-cc1) exec {binary} "$@" {plugin} ;;
-cc1*) exec {binary} "$@" ;;
esac
case $0 in
*++) set -- {cxx} --start-no-unused-arguments {plugin} --end-no-unused-arguments "$@" ;;
*) set -- {c} --start-no-unused-arguments {plugin} --end-no-unused-arguments "$@" ;;
esac
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Extended:
    """A clang that says more.

    Attributes:
        output: its folder.
        compiler: the words of the command that runs the stock clang.
        version: LLVM's version.
        features: the names of the features that it adds, in their order.
    """

    output: Path
    compiler: tuple[str, ...]
    version: str
    features: tuple[str, ...]

    @property
    def clang(self) -> Path:
        """The program."""
        return self.output / "bin" / "clang"


def extend_clang(
    output: Path, compiler: Compiler, copies: bytes | None = None, *, plugin: Path | None = None, force: bool
) -> Extended:
    """Make a clang that says more with each question, and hold a live session with it.

    Args:
        output: the folder to make.
        compiler: the stock clang.
        copies: the table of `mlgo_corpus.runs.functions.copies`, for a clang that tells them of a project.
        plugin: the plugin for this clang, if it was compiled before.
        force: replace another one.

    Raises:
        UsageError: something else is in the output's place, LLVM's headers are not installed, or the clang loads no
            plugins.
        ToolError: the plugin cannot be compiled.
    """
    if loads_plugin(compiler.compile_words):
        raise UsageError("has a plugin already", option="compiler", value=compiler.driver[0])
    final, drivers = Path(os.path.abspath(output)), drivers_of(compiler)
    with whole_folder(output, replace=replaces_own(output, _FILES, _MADE_BY, force=force)) as folder:
        own = folder / PLUGIN_NAME
        if copies is not None:
            (folder / COPIES_NAME).write_bytes(copies)
        extended = Extended(final, compiler.driver, compiler.version, _make_plugin(own, compiler, plugin))
        (folder / "bin").mkdir()
        program = folder / "bin" / "clang"
        program.write_text(
            _SCRIPT.format(
                version=compiler.version,
                made_by=_MADE_BY,
                digest=sha256(own.read_bytes() + (copies or b"")).hexdigest(),
                binary=shlex.quote(str(compiler.binary)),
                plugin=shlex.quote(f"{PLUGIN_OPTION}{final / PLUGIN_NAME}"),
                c=shlex.join(drivers.c),
                cxx=shlex.join(drivers.cxx),
            )
        )
        program.chmod(0o755)
        program.with_name("clang++").symlink_to("clang")
        (folder / _DESCRIPTION_NAME).write_text(json.dumps(_described(extended), indent=1) + "\n")
    return extended


def read_extended(folder: Path) -> Extended | None:
    """Return the extended clang in a folder; None if there is none."""
    said = read_note(folder / _DESCRIPTION_NAME)
    if not isinstance(said, dict) or said.get("made_by") != _MADE_BY or not (folder / "bin" / "clang").is_file():
        return None
    words, version, features = said.get("compiler"), said.get("version"), said.get("features")
    if not isinstance(words, list) or not isinstance(features, list):
        return None
    if not all(isinstance(text, str) for text in (version, *words, *features)):
        return None
    return Extended(folder, tuple(words), str(version), tuple(features))


def tells_copies(words: Iterable[str]) -> bool:
    """Return True if a clang's own words load the plugin of one that was extended for a project."""
    plugins = (Path(word.removeprefix(PLUGIN_OPTION)) for word in words if word.startswith(PLUGIN_OPTION))
    return any(plugin.with_name(COPIES_NAME).is_file() for plugin in plugins)


def cached_extended(compiler: Compiler, cache: Path | None = None, copies: bytes | None = None) -> Extended:
    """Return a clang that says more than a stock clang does, in the cache; it is made if it is not there.

    If another process makes it, this one waits. With ``copies``, see `extend_clang`, it is one for a project.

    Raises:
        UsageError: LLVM's headers are not installed, the clang loads no plugins, or the cache cannot be written.
        ToolError: the plugin cannot be compiled.
    """
    digest = sha256(_SOURCE.read_bytes())
    status = compiler.binary.stat()
    digest.update(repr((__version__, compiler.driver, compiler.version, status.st_size, status.st_mtime_ns)).encode())
    place = cache_folder(cache).absolute() / "extended"
    digest.update(os.fsencode(place))  # which the script names: a cache that was moved has none
    digest.update(copies or b"")
    folder = place / digest.hexdigest()[:32]

    def whole() -> Extended | None:
        names = (PLUGIN_NAME,) if copies is None else (PLUGIN_NAME, COPIES_NAME)
        return read_extended(folder) if all((folder / name).is_file() for name in names) else None

    def make() -> Extended:
        plugin = None if copies is None else cached_extended(compiler, cache).output / PLUGIN_NAME
        return extend_clang(folder, compiler, copies, plugin=plugin, force=True)

    found = whole()
    if found is None:
        try:
            with locked(folder.with_name(f"{folder.name}.lock"), str(folder), waiting=lambda: None):
                found = whole() or make()
        except OSError as error:
            message = f"a clang with a plugin cannot be made in {folder}: {os_reason(error)}"
            raise UsageError(f"{message}; set MLGO_CORPUS_CACHE to another folder") from error
    return found


def plugin_files(compiler: Compiler, cache: Path | None = None, copies: bytes | None = None) -> dict[str, bytes]:
    """Return the plugin for a stock clang, that of `cached_extended`, whose errors this has, and what it is to read.

    They are by the names that they have to have in one folder.
    """
    plugin = (cached_extended(compiler, cache).output / PLUGIN_NAME).read_bytes()
    return {PLUGIN_NAME: plugin} | ({} if copies is None else {COPIES_NAME: copies})


def _make_plugin(plugin: Path, compiler: Compiler, made: Path | None) -> tuple[str, ...]:
    """Compile the plugin for a stock clang, hold a live session with it, and return the features that it adds.

    Args:
        plugin: the file to write.
        compiler: the stock clang.
        made: the same plugin, if it was compiled before.

    Raises:
        UsageError: LLVM's headers are not installed, or the clang loads no plugins.
        ToolError: it cannot be compiled.
    """
    if made is None:
        headers = f"-I{_headers(compiler)}"
        run_tool((*drivers_of(compiler).cxx, *_FLAGS, headers, str(_SOURCE), "-o", str(plugin)), timeout=_TIMEOUT_S)
    else:
        shutil.copyfile(made, plugin)
    return _added_features(compiler, plugin)


def _described(extended: Extended) -> dict[str, Any]:
    return {
        "tool": "mlgo-corpus",
        "tool_version": __version__,
        "made_by": _MADE_BY,
        "compiler": list(extended.compiler),
        "version": extended.version,
        "features": list(extended.features),
    }


def headers_of(toolchain: Toolchain) -> Path | None:
    """Return the folder of LLVM's headers that a clang is extended with; None if it is too old, or they are missing."""
    if (toolchain.major or 0) < OLDEST_EXTENDED:
        return None
    return _find_headers(toolchain.binary or Path(), toolchain.version or "", toolchain.llvm_config)


def _find_headers(binary: Path, version: str, config: Path | None) -> Path | None:
    """Return the folder of LLVM's headers of exactly a clang's version; None if they are not installed.

    Args:
        binary: the clang.
        version: LLVM's.
        config: its ``llvm-config``.
    """
    for folder in _include_folders(binary, config):
        with suppress(OSError):
            found = _HEADERS_VERSION.search((folder / "llvm" / "Config" / "llvm-config.h").read_text())
            if found is not None and found[1] == version:
                return folder
    return None


def _headers(compiler: Compiler) -> Path:
    """Return the folder of LLVM's headers of exactly this version.

    Raises:
        UsageError: they are not installed, or this LLVM is too old.
    """
    if compiler.major < OLDEST_EXTENDED:
        message = f"LLVM {OLDEST_EXTENDED} or newer can be extended, this is {compiler.version}"
        raise UsageError(message, option="compiler", value=compiler.driver[0])
    folder = _find_headers(compiler.binary, compiler.version, find_beside(compiler, "llvm-config"))
    if folder is None:
        message = f"LLVM's headers of {compiler.version} are needed: apt-get install {headers_package(compiler.major)}"
        raise UsageError(message, option="compiler", value=compiler.driver[0])
    return folder


def headers_package(major: int) -> str:
    """Return the name of Debian's package of the headers of an LLVM."""
    return f"llvm-{major}-dev"


def _include_folders(binary: Path, config: Path | None) -> Iterator[Path]:
    for one in (binary, binary.resolve()):
        yield one.parent.parent / "include"
    if config is not None:
        with suppress(ToolError):
            yield Path(run_tool((str(config), "--includedir"), timeout=_TIMEOUT_S).stdout.decode().strip())


def _added_features(compiler: Compiler, plugin: Path) -> tuple[str, ...]:
    """Hold a session without and with the plugin, and return the features that are told only with it.

    Raises:
        UsageError: the clang does not load it, or holds no sessions.
    """
    task = find_task(INLINING)
    with scratch_folder() as scratch:
        shutil.copy(PROBE_DATA / "probe.c", scratch)
        places = (scratch / "plain", scratch / "extended")
        for place in places:
            place.mkdir()
        try:
            plain = session_features(compiler, task, places[0])
            extended = session_features(compiler, task, places[1], f"{PLUGIN_OPTION}{plugin}")
        except (MlgoCorpusError, OSError) as error:
            message = f"it cannot be extended: {one_line(error)}"
            raise UsageError(message, option="compiler", value=compiler.driver[0]) from None
    if extended[: len(plain)] != plain or len(extended) == len(plain):
        message = "it cannot be extended: with the plugin it tells other features than without"
        raise UsageError(message, option="compiler", value=compiler.driver[0])
    return extended[len(plain) :]
