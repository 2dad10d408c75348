"""Build a clang, an opt and an llc with LLVM's development mode, without building LLVM.

A stock LLVM lacks development mode because it was compiled without TFLite. Here the few files that know of it are
compiled from the distribution's own sources, and linked with the distribution's static libraries and an evaluator of
ours (``model_evaluator.cpp``). Without a model, development mode logs the decisions of LLVM's own heuristics, so the
objects equal the stock clang's.

What is made::

    OUT/bin/clang, clang++, opt, llc
    OUT/lib/clang         a link to the stock clang's headers (the parent of its resource directory)
    OUT/toolchain.json    what it is and of what it was made; its `inputs` are there only if the rest is whole

The tools are moved there when they are whole and a probe has passed. The work lies in a cache, one folder for each
LLVM, and a build that ended early goes on where it was.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlgo_corpus import __version__
from mlgo_corpus.compilers.devmode.compilation import (
    CLANG_MAIN,
    CLANG_MAIN_16,
    CONFIG_HEADER,
    EVALUATOR,
    LINK_FLAGS,
    OWN_FLAGS,
    TOOLS,
    Compiler,
    disk_full,
    has_opt_library,
    list_units,
    write_generated,
)
from mlgo_corpus.compilers.devmode.installed import (
    Installed,
    Missing,
    install_packages,
    look,
    missing_error,
    package_names,
)
from mlgo_corpus.compilers.devmode.probe import probe_tools
from mlgo_corpus.compilers.devmode.provision import Source, is_made_of, part_folder, provide_source
from mlgo_corpus.compilers.devmode.record import ALREADY_THERE, PHASES, Phase, Progress, Record, Request, count
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.lock import locked
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import os_reason

__all__ = ["PHASES", "DevmodeBuild", "Phase", "build_devmode"]

DESCRIPTION_NAME = "toolchain.json"
FORMAT = "mlgo-corpus-devmode"

# What a build that runs, or was killed, has in its output besides what it makes.
LOCK_NAME = ".devmode.lock"
PART_NAME = ".devmode.part"
# What a cache holds of ours: others may use it, too.
WORK_NAME = "devmode-build"
TOOLCHAINS_NAME = "toolchains"


@dataclass(frozen=True, slots=True)
class DevmodeBuild:
    """What a call of `build_devmode` did; ``version`` is LLVM's, ``tools`` are clang, opt and llc."""

    output: Path
    version: str
    tools: tuple[Path, ...]
    phases: tuple[Phase, ...]
    seconds: float
    fetched_bytes: int


def build_devmode(
    output: Path | None,
    *,
    llvm_config: str | None = None,
    llvm_source: Path | None = None,
    cache: Path,
    install: bool = False,
    jobs: int,
    force: bool = False,
    progress: Progress,
) -> DevmodeBuild:
    """Build the tools into ``output``, ``jobs`` processes at a time; what is there and fits is only probed.

    Without an ``output`` it is ``toolchains/devmode-19`` in the cache, or whatever LLVM's version is.
    ``llvm_config`` names the LLVM to build with (default: 19, then others). ``llvm_source`` is a tree of the same
    version's sources, or a tarball of one (default: apt fetches the package's). ``install`` lets apt install what is
    missing. ``force`` builds anew, also into a folder that holds something else, of which the rest stays.
    ``progress`` is called with a phase (`mlgo_corpus.compilers.devmode.record.PHASES`), what of it is done, and all.

    While another build works on the same output or in the same cache, this one waits (phase ``wait``).

    Raises:
        UsageError: something is missing, does not fit, or stands in the way; the message says what to do.
        ToolError: a compiler or another program failed, or what was built failed the probe.
        FormatError: an archive of sources is damaged.
    """
    request = Request(
        llvm_config=llvm_config,
        llvm_source=llvm_source.absolute() if llvm_source is not None else None,
        cache=cache.absolute(),
        install=install,
        jobs=jobs,
        force=force,
        progress=progress,
    )
    record = Record()
    try:
        if output is not None:  # to know before anything is installed
            _check_output(output, force=force)
        installed = _look(request, record)
        output = (output or request.cache / TOOLCHAINS_NAME / f"devmode-{installed.major}").absolute()
        _build(output, request, record, installed)
    except OSError as error:
        raise _unusable(error, request.cache) from error
    return DevmodeBuild(
        output=output,
        version=installed.version,
        tools=tuple(output / "bin" / tool for tool in TOOLS),
        phases=tuple(record.phases),
        seconds=time.monotonic() - record.begin,
        fetched_bytes=record.fetched_bytes,
    )


def _unusable(error: OSError, cache: Path) -> UsageError:
    path = Path(os.fsdecode(error.filename)) if error.filename else None
    if error.errno == errno.ENOSPC:
        return disk_full(path.parent if path else cache)
    return UsageError(f"{path or cache}: cannot be used: {os_reason(error)}")


def _build(output: Path, request: Request, record: Record, installed: Installed) -> None:
    if not request.force and _is_finished(output, request, installed):
        _probe(output / "bin", request, record, installed, ALREADY_THERE)
        return
    _check_output(output, force=request.force)
    # Always in this order, so that no two builds wait for each other.
    with _claimed(output), _locked(output / LOCK_NAME, request, record):
        if not request.force and _is_finished(output, request, installed):
            _probe(output / "bin", request, record, installed, ALREADY_THERE)
            return
        work = request.cache / WORK_NAME / f"llvm-{installed.version}"
        with _locked(work / "lock", request, record):
            _make(output, request, record, installed, work)


def _check_output(output: Path, *, force: bool) -> None:
    """Refuse to write into what is not ours."""
    if not output.exists() or _read_description(output):
        return
    if not output.is_dir():
        raise UsageError(f"{output}: not a folder: name another --output")
    if not force and {path.name for path in output.iterdir()} - {LOCK_NAME, PART_NAME}:
        raise UsageError(
            f"{output}: there is something else than a toolchain (no {DESCRIPTION_NAME} of ours):"
            " name another --output, or add --force to put it in there"
        )


def _look(request: Request, record: Record) -> Installed:
    """Find the LLVM to build with; install what is missing of it, as far as that was asked for."""
    with record.phase("look") as detail:
        request.progress("look", 0, 1)
        installed, missing = look(request.llvm_config)
        request.progress("look", 1, 1)
        detail.append(f"LLVM {installed.version}" if installed is not None else "no LLVM")
    if installed is None or missing:
        return _install(request, record, installed, missing)
    return installed


def _install(request: Request, record: Record, installed: Installed | None, missing: tuple[Missing, ...]) -> Installed:
    what = f"{installed.llvm_config.name} is LLVM {installed.version}" if installed else "no LLVM to build with"
    packages = package_names(missing)
    if not request.install or not all(item.package for item in missing):
        raise missing_error(what, missing)
    asked: list[str] = []
    with record.phase("packages") as detail:
        # What is there says what else is needed: a second round may follow.
        while missing and not set(packages) <= set(asked):
            request.progress("packages", len(asked), len(asked) + len(packages))
            install_packages(packages)
            asked += packages
            request.progress("packages", len(asked), len(asked))
            installed, missing = look(str(installed.llvm_config) if installed else missing[0].file)
            packages = package_names(missing)
        detail.append(count(len(asked), "package"))
    if installed is None or missing:
        raise missing_error("after apt-get install", missing)
    return installed


@contextmanager
def _claimed(output: Path) -> Iterator[None]:
    """Make the output's folder; if nothing came of it, it goes again."""
    output.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # it is not empty
            output.rmdir()


@contextmanager
def _locked(path: Path, request: Request, record: Record) -> Iterator[None]:
    begin = time.monotonic()
    waited = False

    def waiting() -> None:
        nonlocal waited
        waited = True
        request.progress("wait", 0, 1)

    with locked(path, str(path), waiting=waiting):
        if waited:
            request.progress("wait", 1, 1)
            record.phases.append(Phase("wait", time.monotonic() - begin, f"for another build in {path.parent}"))
        yield


def _read_description(output: Path) -> dict[str, Any]:
    """Read the output's description; empty if there is none of ours."""
    try:
        description = json.loads((output / DESCRIPTION_NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    is_ours = isinstance(description, dict) and description.get("format") == FORMAT
    return description if is_ours else {}


def _is_finished(output: Path, request: Request, installed: Installed) -> bool:
    """Tell whether the output was made of the same things; tools that were changed since are not believed."""
    description = _read_description(output)
    try:
        return (
            description.get("inputs") == _inputs(installed)
            and description["tools"] == _tool_sizes(output)
            and (output / "bin" / "clang++").exists()
            and (output / "lib" / "clang").is_dir()
            and is_made_of(description["sources"], request.llvm_source)
        )
    except (OSError, LookupError, AttributeError):
        return False


def _inputs(installed: Installed) -> dict[str, Any]:
    """Describe what decides what the tools are, besides LLVM's sources: versions and digests, no paths, no dates."""
    own = EVALUATOR.read_bytes() + "".join((CLANG_MAIN, CLANG_MAIN_16, CONFIG_HEADER)).encode()
    return {
        "llvm": installed.version,
        "packages": dict(installed.packages),
        "compile_flags": [*OWN_FLAGS],
        "link_flags": [*LINK_FLAGS],
        "own_sources_sha256": hashlib.sha256(own).hexdigest(),
    }


def _tool_sizes(output: Path) -> dict[str, int]:
    return {tool: (output / "bin" / tool).stat().st_size for tool in TOOLS}


def _make(output: Path, request: Request, record: Record, installed: Installed, work: Path) -> None:
    """Build in the folder ``work`` and the output, whose locks are held."""
    source = provide_source(request, record, installed, work)
    generated = work / "generated"
    write_generated(generated, source.folder)
    compiler = Compiler(installed, generated, work / "objects")
    units = list_units(source.folder, generated, has_opt_library=has_opt_library(installed))
    objects = compiler.objects_of(units)
    with record.phase("compile") as detail:
        compiled = compiler.compile(objects, request.jobs, request.counter("compile"))
        detail.append(count(compiled, "file") if compiled else ALREADY_THERE)
    with part_folder(output / PART_NAME) as part:
        with record.phase("link") as detail:
            compiler.link(objects, part / "bin", request.jobs, request.counter("link"))
            detail.append(count(len(TOOLS), "tool"))
        _complete(part, installed)
        _probe(part / "bin", request, record, installed)
        _move_into_place(part, output, _description(part, installed, source))


def _complete(part: Path, installed: Installed) -> None:
    """Add to the tools what else they need."""
    (part / "bin" / "clang++").symlink_to("clang")
    answer = run_tool((str(installed.clang), "-print-resource-dir"), timeout=60).stdout.decode(errors="replace")
    (part / "lib").mkdir()
    (part / "lib" / "clang").symlink_to(Path(answer.strip()).parent)


def _probe(tools: Path, request: Request, record: Record, installed: Installed, *said: str) -> None:
    with record.phase("probe") as detail, scratch_folder() as scratch:
        request.progress("probe", 0, 1)
        found = probe_tools(tools, version=installed.version, stock_clang=installed.clang, scratch=scratch)
        request.progress("probe", 1, 1)
        observations = sum(number for name, number in found.items() if not name.endswith("rows"))
        detail += [*said, count(observations, "observation")]


def _description(part: Path, installed: Installed, source: Source) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "mlgo_corpus": __version__,
        "llvm_config": str(installed.llvm_config),
        "inputs": _inputs(installed),
        "sources": dict(source.origin),
        "tools": _tool_sizes(part),
    }


def _move_into_place(part: Path, output: Path, description: dict[str, Any]) -> None:
    """Replace file by file; a build that is killed in between leaves a description without ``inputs``."""
    _write_description(output, {"format": FORMAT})
    for name in ("lib/clang", "bin/clang++", *(f"bin/{tool}" for tool in TOOLS)):
        (output / name).parent.mkdir(exist_ok=True)
        (part / name).replace(output / name)
    _write_description(output, description)


def _write_description(output: Path, description: dict[str, Any]) -> None:
    write_atomically(output / DESCRIPTION_NAME, (json.dumps(description, indent=1) + "\n").encode())
