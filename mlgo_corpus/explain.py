"""The explain stage: find out what one file holds, what it lacks, and what to do about it."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlgo_corpus.builds.objects import (
    OF_A_DLL,
    OTHER_SECTION,
    Embedded,
    Reason,
    SectionNames,
    Tally,
    describe_file,
    read_object,
)
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import FormatError, UsageError, WorkerError
from mlgo_corpus.files.regular import read_file
from mlgo_corpus.files.text import option_key, os_reason, printable
from mlgo_corpus.formats.bitcode.headers import ModuleHeader, read_module_header
from mlgo_corpus.formats.commands.embedded import decode_options, split_options
from mlgo_corpus.formats.objects.objfile import parse_objfile
from mlgo_corpus.runs.extract.module import status_of
from mlgo_corpus.runs.report import Report

_SECONDS = 120.0

_REMEDIES = {
    Reason.NO_BITCODE: "compile it with clang and -Xclang -fembed-bitcode=all",
    Reason.NO_COMMAND: "compile with -Xclang -fembed-bitcode=all, which embeds the command as well; or extract with "
    f"{option_key('command_override')}",
    Reason.RAW_LTO: f"extract with {option_key('command_override')}; for ThinLTO see extract "
    f"{option_key('thinlto')}; or compile without -flto and with -Xclang -fembed-bitcode=all",
    Reason.POST_OPT_IR: "compile with -Xclang -fembed-bitcode=all instead of -fembed-bitcode",
    Reason.UNPAIRED_COMMAND: "extract from the objects or archives it was linked from",
    Reason.TRUNCATED: "build it again; the file ends too early",
    Reason.MALFORMED: "build it again; the file is damaged",
    Reason.UNSUPPORTED_FORMAT: "give an ELF, Mach-O or COFF object, an archive, a linked binary or bitcode",
    Reason.MISSING: "build it, or run from the folder the archive's paths are relative to",
}


@dataclass(frozen=True, slots=True)
class ExplainedModule:
    """One module of the file, or a member that is not a module."""

    member: str | None
    status: str
    reason: str
    detail: str
    bitcode_bytes: int | None
    producer: str | None
    target_triple: str | None
    source_filename: str | None
    opt_level: str | None
    options: int | None
    command: str | None


@dataclass(frozen=True, slots=True)
class Explanation(Report):
    """The content of a file.

    Attributes:
        path: the file.
        kind: what it is, in a few words.
        size: its size in bytes.
        sections: (name, bytes) of each section, if it has sections.
        modules: one for each module or member.
        advice: what to do, most needed first.
    """

    path: Path
    kind: str
    size: int
    sections: tuple[tuple[str, int], ...]
    modules: tuple[ExplainedModule, ...]
    advice: tuple[str, ...]


def explain_file(path: Path | str, *, names: SectionNames | None = None) -> Explanation:
    """Examine an object, an archive, a linked binary or a bitcode file, in a separate process.

    Raises:
        UsageError: the file cannot be opened.
        WorkerError: that process died, or took too long.
    """
    work = partial(_explain, names or SectionNames())
    (result,) = parallel_map(work, [str(path)], jobs=1, limit=_SECONDS)
    if isinstance(result, Lost):
        raise WorkerError(f"{path}: cannot be read: {result.detail}")
    if isinstance(result, UsageError):
        raise result
    return result


def _explain(names: SectionNames, path: str) -> Explanation | UsageError:
    try:
        data = read_file(path)
    except IsADirectoryError:
        return UsageError(f"{path}: expected a file, found a folder; name a file in it, or extract the folder")
    except (OSError, ValueError) as error:
        return UsageError(f"{path}: {os_reason(error)}")

    def open_member(name: str) -> bytes | memoryview:
        return read_file(os.path.join(os.path.dirname(path), name))

    modules = tuple(map(_module, read_object(data, Tally(), names=names, open_member=open_member)))
    try:
        sections = tuple((printable(item.name), item.size) for item in parse_objfile(data).sections)
    except FormatError:
        sections = ()
    return Explanation(Path(path), describe_file(data), len(data), sections, modules, tuple(_advice(path, modules)))


def _module(item: Embedded) -> ExplainedModule:
    header, facts = ModuleHeader(None, None, None), item.facts
    if item.bitcode is not None:
        with contextlib.suppress(FormatError):
            header = read_module_header(item.bitcode)
    options = None if item.command is None else decode_options(split_options(item.command))
    return ExplainedModule(
        member=item.member and printable(item.member),
        status=status_of(item.reason),
        reason=str(item.reason),
        detail=printable(item.detail),
        bitcode_bytes=None if item.bitcode is None else len(item.bitcode),
        producer=header.producer,
        target_triple=(facts.target_triple if facts else None) or header.target_triple,
        source_filename=header.source_filename,
        opt_level=facts.opt_level if facts else None,
        options=None if options is None else len(options),
        command=None if options is None else printable(shlex.join(options)),
    )


def _advice(path: str, modules: tuple[ExplainedModule, ...]) -> Iterator[str]:
    mended = [item for item in modules if not item.detail.endswith((OTHER_SECTION, OF_A_DLL))]
    reasons = dict.fromkeys(Reason(item.reason) for item in mended)
    usable = sum(item.status == STATUS_OK and bool(item.options) for item in modules)
    if usable:
        what = "it" if len(modules) == 1 else f"{usable} of its {len(modules)} modules"
        yield f"mlgo-corpus extract {shlex.quote(path)} {option_key('output')} CORPUS takes {what} into a corpus"
    for reason in reasons:
        if reason in _REMEDIES:
            yield f"{reason}: {_REMEDIES[reason]}"
