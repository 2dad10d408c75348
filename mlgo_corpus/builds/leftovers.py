"""What a build links and archives although nothing that was seen compiled it.

A build of a tree that is partly up to date compiles only what changed, and its corpus lacks the rest. The rest has
names: links and archives take it as an input. Such a file is left over if it is older than the first build of the
corpus, and no compile that the corpus knows made it. What is newer was made by a program that was not seen: a compiler
that is called by its path, if the object names one and has no bitcode; else an assembler, or a compiler of another
language. What is in another place, such as a system's library, is not the build's.

An archive is looked into if it is left over, or if a command that was seen added to it. Its members are told by their
names alone, for their contents may have been changed (``strip``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from mlgo_corpus.builds.objects import SectionNames
from mlgo_corpus.errors import FormatError
from mlgo_corpus.files.regular import read_file
from mlgo_corpus.formats.commands.buildfiles import HEAD_BYTES, is_object
from mlgo_corpus.formats.commands.driverline import usual_object
from mlgo_corpus.formats.commands.linkwords import LinkWord, Role, output_of, read_command
from mlgo_corpus.formats.objects import archive

_ASSEMBLER = (".s", ".S")
# The section that every compile that is seen has, unless it failed to embed, and what compilers write of themselves.
_BITCODE = SectionNames().bitcode[0].encode()
_COMPILERS = (b"GCC: (", b"clang version ")


@dataclass(frozen=True, slots=True)
class Link:
    """One command that links, or makes an archive.

    Attributes:
        directory: where it ran.
        words: the command, its program first; parameter files are replaced by their words.
        order: grows with the time of the link.
        status: the exit code if it compiled its sources, too; else 0, for then it is recorded before it runs.
    """

    directory: str
    words: tuple[str, ...]
    order: int = 0
    status: int = 0

    @property
    def driver(self) -> str:
        """The program: ``ar``, a linker, or a compiler's driver."""
        return self.words[0]

    def read(self) -> tuple[LinkWord, ...]:
        """Return what each of the words after the program is."""
        return read_command(self.driver, self.words[1:])


@dataclass(frozen=True, slots=True)
class _Uncompiled:
    """What a build links and archives although nothing that was seen compiled it.

    Attributes:
        left_over: objects and shared libraries that are older than the corpus, as ``PATH`` or ``ARCHIVE(MEMBER)``.
        unseen: newer objects of a C or C++ compiler.
    """

    left_over: tuple[str, ...]
    unseen: tuple[str, ...]


def find_uncompiled(
    links: Sequence[Link], objects: Iterable[tuple[str, str]], build_dir: str, began_ns: int
) -> _Uncompiled:
    """Find what is left over, and what an unseen compiler made.

    Args:
        links: the links and archives of a build.
        objects: the path of each compiled object, and the digest of its content.
        build_dir: the folder of the build; the folders that its links ran in are the build's, too.
        began_ns: when the first build began that made some of the objects.
    """
    paths, digests = set[str](), set[str]()
    for path, digest in objects:
        paths.add(path)
        digests.add(digest)
    named: dict[str, bool] = {}
    for link in links:
        inside = tuple(f"{folder.rstrip('/')}/" for folder in (build_dir, link.directory))
        for path, added_to in _files_of(link):
            if path.startswith(inside):
                named[path] = added_to or named.get(path, False)
    made = {os.path.normpath(os.path.join(link.directory, name)) for link in links for name in _iter_outputs(link)}
    members = {os.path.basename(path) for path in (*paths, *named)}
    others = [(path, added_to) for path, added_to in named.items() if path not in paths]
    return _Uncompiled(
        tuple(name for path, to in others for name in _left_over(path, began_ns, digests, members, added_to=to)),
        tuple(path for path, _ in others if path not in made and _is_unseen(path, began_ns, digests)),
    )


def _files_of(link: Link) -> Iterator[tuple[str, bool]]:
    """Yield the paths of the files that a command reads, and of the archive that it adds to, which has True."""
    words = link.read()
    for word, path in located_words(words, link.directory):
        if word.role is not Role.FILE:
            yield path, False
    if link.driver == "ar" and (written := output_of(link.driver, words)) is not None:
        yield os.path.normpath(os.path.join(link.directory, written)), True


def _iter_outputs(link: Link) -> Iterator[str]:
    """Yield the files that a command may have written, an assembler's objects among them."""
    words = link.read()
    yield output_of(link.driver, words) or ""
    for word in words:
        if word.role is Role.SOURCE and word.name.endswith(_ASSEMBLER):
            yield usual_object(word.name)


def located_words(words: Sequence[LinkWord], directory: str) -> Iterator[tuple[LinkWord, str]]:
    """Yield the words of a command that name something to read, each with the path of the file.

    The file of a library is in a folder that the command itself names. A library that is in none of them is left out.
    """
    folders = [one.path or "" for one in words if one.role is Role.FOLDER]
    static = False
    for word in words:
        if word.role is Role.FLAG and len(word.words) == 1:
            static = _is_static(word, now=static)
        elif word.role in (Role.INPUT, Role.FILE, Role.SOURCE):
            yield word, os.path.normpath(os.path.join(directory, word.path or ""))
        elif word.role is Role.LIBRARY:
            place = _find_library(word.path or "", folders, directory, static=static)
            if place is not None:
                yield word, place


def _is_static(word: LinkWord, *, now: bool) -> bool:
    """Return whether only archives are searched for libraries after an option."""
    name = word.words[0].lstrip("-")
    if name in ("static", "static-pie") or (word.linker and name in ("Bstatic", "dn", "non_shared")):
        return True
    return False if word.linker and name in ("Bdynamic", "dy", "call_shared") else now


def _find_library(name: str, folders: Sequence[str], directory: str, *, static: bool) -> str | None:
    """Return the file that ``-lNAME`` means in the folders that a command names."""
    suffixes = (".a",) if static else (".so", ".dylib", ".a")
    names = [name[1:]] if name.startswith(":") else [f"lib{name}{suffix}" for suffix in suffixes]
    for folder in folders:
        for one in names:
            path = os.path.normpath(os.path.join(directory, folder, one))
            if os.path.isfile(path):
                return path
    return None


def _left_over(path: str, began_ns: int, digests: set[str], members: set[str], *, added_to: bool) -> Iterator[str]:
    with suppress(OSError, ValueError, FormatError):
        older = os.stat(path).st_mtime_ns < began_ns
        if not older and not added_to:
            return
        data = read_file(path)
        if archive.is_archive(data):
            for member in archive.iter_members(data):
                if os.path.basename(member.name) not in members:
                    yield f"{path}({member.name})"
        elif older and is_object(bytes(data[:HEAD_BYTES])) and sha256(data).hexdigest() not in digests:
            yield path


def _is_unseen(path: str, began_ns: int, digests: set[str]) -> bool:
    with suppress(OSError, ValueError):
        if os.stat(path).st_mtime_ns < began_ns:
            return False
        data = read_file(path)
        if not _is_relocatable(bytes(data[:HEAD_BYTES])) or sha256(data).hexdigest() in digests:
            return False
        content = bytes(data)
        return _BITCODE not in content and any(name in content for name in _COMPILERS)
    return False


def _is_relocatable(head: bytes) -> bool:
    """Return whether a file is an ELF object, not a program, a shared library, or an archive."""
    return head.startswith(b"\x7fELF") and head[16:18] in (b"\1\0", b"\0\1")
