"""One link run again: its inputs in a tree of their own, the linker behind walls, the product measured.

Nothing of the build is written to or trusted. The inputs of a link get their places below an empty folder, as links to
files of known content in a store: an original is taken only if it has the digest that was recorded. There the user's
own driver is asked which command it would run (``-###``), and that linker runs, confined to this tree, the store and
the system's libraries. So the words that name files stay as the build wrote them, and what a linker puts into its
product of these (the needed libraries, say) is the same.

Where linkers are not deterministic a product linked of the same objects differs: a build id that is random
(``--build-id=uuid``), and what a build did to the product after the link (``strip``, ``patchelf``).
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from mlgo_corpus.builds.compiles import kept_object
from mlgo_corpus.compilers.compile import run_folder
from mlgo_corpus.compilers.confinement import confine
from mlgo_corpus.compilers.driver import ask_driver
from mlgo_corpus.compilers.failures import RunFailure, classify
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.compilers.process import run_tool
from mlgo_corpus.corpus.products import InputState, LinkedFile, LinkKind, LinkRecord
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.tracetable import stderr_tail
from mlgo_corpus.errors import CorpusError, FormatError, ToolError, Usage
from mlgo_corpus.files.names import MAX_COMPONENTS, checked_name
from mlgo_corpus.files.regular import digest_of_file, read_file
from mlgo_corpus.files.text import os_reason, printable
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.buildfiles import HEAD_BYTES
from mlgo_corpus.formats.commands.linkwords import LINKERS, LinkWord, Role
from mlgo_corpus.formats.objects import archive
from mlgo_corpus.formats.objects.objfile import measure_object

# Not a name that a build uses; the linker may write only in the folder that it runs in.
_PRODUCT = ".relinked-product"
_DISTRIBUTION = tuple(f"/etc/{name}" for name in ("os-release", "lsb-release", "debian_version", "redhat-release"))
# These messages of a linker are about its inputs, whichever of them it prints.
_OF_THE_LINKER = frozenset({RunReason.COMPILER_ERROR, RunReason.NEWER_BITCODE, RunReason.UNREADABLE_BITCODE})
_TELLING = re.compile(r"error:|undefined reference|multiple definition|cannot find|unrecognized")
_SCRIPT = re.compile(rb"\b(?:INPUT|GROUP)\s*\(")
_LONGEST_MEMBER = 200
_SAFE = re.compile(r"[^A-Za-z0-9_./-]")

NO_LONGER_THERE = "no longer there"
"""How the detail tells a missing file that was there when the build had ended."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of all links.

    Attributes:
        c, cxx: the words that run the two drivers of the user's compiler.
        ar: the words that run the archiver.
        vendor: the compiler's version line.
        flags: options to add to each link of a product.
        corpus: the corpus's folder; None if it is behind a URL.
        objects: the folder of other objects; None to link the build's own.
        object_names: the files in it of modules whose names clash.
        work: an empty folder for files under way.
        trusted: whether the corpus is the user's own: then no option is refused, and there are no walls.
        limits: what each link may take.
    """

    c: tuple[str, ...]
    cxx: tuple[str, ...]
    ar: tuple[str, ...]
    vendor: str
    flags: tuple[str, ...]
    corpus: Path | None
    objects: Path | None
    object_names: Mapping[str, str]
    work: Path
    trusted: bool
    limits: Limits


@dataclass(slots=True)
class Linked:
    """A product that was linked.

    Attributes:
        path: the product.
        sha256, text_size, code_size: what it is.
        argv: the linker's command.
        replaced: modules whose object was replaced.
        missing: modules whose object is the build's own.
        dropped: options that were left out.
    """

    path: Path = Path()
    sha256: str = ""
    text_size: int | None = None
    code_size: int | None = None
    argv: tuple[str, ...] = ()
    replaced: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)


class Store:
    """Files of known content, under their digests, which links of all threads share."""

    def __init__(self, settings: LinkSettings) -> None:
        self.folder = settings.work / "store"
        self.folder.mkdir()
        self._settings = settings
        self._lock = threading.RLock()
        self._objects: dict[str, Path | None] = {}
        self._archives: dict[tuple[object, ...], tuple[Path, tuple[str, ...], tuple[str, ...]]] = {}

    def original(self, path: str, digest: str | None, what: str) -> Path:
        """Return a file of the build, or the copy that the corpus has, if it is the one that was linked.

        Raises:
            RunFailure: it is gone, or another one.
        """
        if digest is None:
            raise RunFailure(RunReason.MISSING_FILE, f"{what}: it was not there when the build had ended")
        place = self.folder / digest
        if place.exists():
            return place
        changed = False
        kept = [] if self._settings.corpus is None else [str(kept_object(self._settings.corpus, digest))]
        for one in (path, *kept):
            with suppress(OSError, ValueError):
                if digest_of_file(one) == digest:
                    return self._add(one, digest)
                changed = True
        reason = RunReason.CHANGED_FILE if changed else RunReason.MISSING_FILE
        raise RunFailure(reason, f"{what}: {'not the file that was linked' if changed else NO_LONGER_THERE}: {path}")

    def object_of(self, module: str) -> Path | None:
        """Return the other object of a module, or None.

        Raises:
            OSError: it cannot be read.
        """
        folder = self._settings.objects
        if folder is None:
            return None
        with self._lock:
            if module not in self._objects:
                self._objects[module] = None
                # The record of links is as untrusted as its names, which may lead elsewhere.
                with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, CorpusError):
                    path = folder / self._settings.object_names.get(module, checked_name(module))
                    self._objects[module] = self._add(str(path), digest_of_file(str(path)))
            return self._objects[module]

    def put(self, data: Buffer) -> Path:
        """Add content."""
        place = self.folder / sha256(data).hexdigest()
        if not place.exists():
            part = self._part()
            part.write_bytes(data)
            part.replace(place)
        return place

    def _part(self) -> Path:
        """Return a name that no other file ever had: what is written to a file must not reach one of the build."""
        return self.folder / f".{uuid4().hex}"

    def _add(self, path: str, digest: str) -> Path:
        place = self.folder / digest
        if place.exists():
            return place
        part = self._part()
        try:
            os.link(os.path.realpath(path), part)
        except OSError:  # another file system, or another user's file
            shutil.copyfile(path, part)
        part.replace(place)
        part.unlink(missing_ok=True)  # it stays where another thread has made a second name of the same file
        return place

    def archive_of(
        self, item: LinkedFile, outputs: Mapping[str, Linked], *, replace: bool, stop: threading.Event
    ) -> tuple[Path, tuple[str, ...], tuple[str, ...]]:
        """Return an archive, with other objects for members; and the modules that have one, and those that have none.

        Raises:
            RunFailure: its original is not there, or it cannot be made.
            OSError: a file cannot be read or written.
        """
        original = self.original(item.path, item.sha256, item.word)
        # Thin archives of equal bytes have other members in other folders.
        key = (item.sha256, replace, *((one.sha256, one.module, one.path) for one in item.members))
        with self._lock:
            if key not in self._archives:
                self._archives[key] = self._remade(item, original, outputs, replace=replace, stop=stop)
            return self._archives[key]

    def _remade(
        self, item: LinkedFile, original: Path, outputs: Mapping[str, Linked], *, replace: bool, stop: threading.Event
    ) -> tuple[Path, tuple[str, ...], tuple[str, ...]]:
        replaced: dict[str, None] = {}
        missing: dict[str, None] = {}
        contents: list[Path | None] = []
        for member in item.members:
            made = outputs.get(member.sha256 or "")
            other = None if made is None else made.path
            if replace and member.module is not None:
                other = self.object_of(member.module) or other
                if self._settings.objects is not None:
                    (missing if other is None else replaced)[member.module] = None
            contents.append(other)
        if not any(contents):
            return original, tuple(replaced), tuple(missing)
        data = read_file(str(original))
        try:
            members = list(archive.iter_members(data))
        except FormatError as error:
            raise RunFailure(RunReason.CHANGED_FILE, f"{item.word}: {error}") from None
        if [one.name for one in members] != [one.name for one in item.members]:
            raise RunFailure(RunReason.CHANGED_FILE, f"{item.word}: it has other members than those recorded")
        with run_folder(self._settings.work) as folder:
            names = []
            for number, (told, there, content) in enumerate(zip(item.members, members, contents, strict=True)):
                if content is None and there.offset is not None:
                    content = self.put(memoryview(data)[there.offset : there.offset + there.size])
                elif content is None:
                    content = self.original(told.path or "", told.sha256, f"{item.word}({told.name})")
                names.append(f"{number}/{_member_name(told.name, number)}")
                (folder / names[-1]).parent.mkdir()
                (folder / names[-1]).symlink_to(content)
            (folder / "words").write_bytes(b"".join(_quoted(name) + b"\n" for name in names))
            return self._archived(folder, stop), tuple(replaced), tuple(missing)

    def _archived(self, folder: Path, stop: threading.Event) -> Path:
        """Make an archive of the files that are listed in a folder."""
        settings, made = self._settings, folder / "made.a"
        limits = confine(settings.ar[:1], [settings.work], memory_limit=None, trusted=settings.trusted)
        timeout = settings.limits.timeout
        try:
            argv = (*settings.ar, "qcsD", made.name, "@words")
            run_tool(argv, cwd=folder, timeout=timeout, stop=stop, **limits.keywords())
            return self._add(str(made), digest_of_file(str(made)))
        except ToolError as error:
            raise RunFailure(*_reason_of(error, timeout)) from None


class ProductLink:
    """One link of one product.

    Args:
        record: the link.
        settings: those of all links.
        store: where contents are.
        records: all links that make what others link, by the digest of their outputs.
        outputs: what was linked again instead of these, by the same digests.
        folder: empty, and this link's own.
        replace: whether to link other objects.
        stop: ends the linker when another thread sets it.
    """

    def __init__(
        self,
        record: LinkRecord,
        settings: LinkSettings,
        store: Store,
        records: Mapping[str, LinkRecord],
        outputs: Mapping[str, Linked],
        folder: Path,
        *,
        replace: bool,
        stop: threading.Event,
    ) -> None:
        self._record = record
        self._settings = settings
        self._store = store
        self._records = records
        self._outputs = outputs
        self._tree = folder / "tree"
        self._folder = folder
        self._replace = replace
        self._stop = stop
        self._cwd = self._place_of(record.directory)
        self._inputs = {one.word: one for one in record.inputs}
        self._rpaths: dict[str, None] = {}
        self.linked = Linked()
        # Facts on the linker's run, also if it fails: `exit_code`, `signal`, `stderr_tail`, `argv`, ...
        self.ended: dict[str, Any] = {}

    def run(self) -> Linked:
        """Link.

        Raises:
            RunFailure: it cannot be linked.
            OSError: a file cannot be read or written.
        """
        self._cwd.mkdir(parents=True)
        words = [each for word in self._checked_words() for each in word]
        listed = next((word for word in words if word.startswith("@")), None)
        if listed is not None and not self._settings.trusted:
            # Whatever it is the value of: a driver and a linker put the file's words there before they read any option.
            raise _refusal(listed, "it names a file of more options")
        for folder in self._rpaths:
            words += ["-Xlinker", "-rpath-link", "-Xlinker", folder]
        flags = self._settings.flags if self._record.kind != LinkKind.RELOCATABLE else ()
        by_linker = self._record.driver in LINKERS
        argv = self._without_driver(words, flags) if by_linker else self._linker((*words, *flags, "-o", _PRODUCT))
        self._link(argv)
        path = self._cwd / _PRODUCT
        if not path.is_file() or path.is_symlink():
            raise RunFailure(RunReason.NO_OBJECT, "the linker did well but wrote no product")
        data = read_file(str(path))
        self.linked.path = path
        self.linked.sha256 = sha256(data).hexdigest()
        with suppress(FormatError):
            sizes = measure_object(data)
            self.linked.text_size, self.linked.code_size = sizes.text_size, sizes.code_size
        return self.linked

    # --- words

    def _checked_words(self) -> Iterator[tuple[str, ...]]:
        record, trusted = self._record, self._settings.trusted
        words = record.words()
        refused = [one for one in words if one.role is Role.REFUSED]
        if refused and not trusted:
            raise _refusal(" ".join(refused[0].words), refused[0].why)
        before = None
        for word in words:
            match word.role:
                case Role.FLAG | Role.REFUSED:
                    yield word.rendered()
                case Role.DROPPED:
                    if word.linker:
                        self.linked.dropped.append(",".join(("-Wl", *LinkWord.rendered(word)[1::2])))
                case Role.OUTPUT:
                    pass
                case Role.FOLDER:
                    yield word.rendered(self._folder_of(word.path or ""))
                case Role.LIBRARY:
                    self._library(word)
                    yield word.rendered()
                case _ if before is Role.REFUSED and self._state_of(word) == InputState.MISSING:
                    yield word.rendered()  # the value of an option that is not known here
                case _:
                    yield self._file(word)
            before = word.role

    def _state_of(self, word: LinkWord) -> str | None:
        found = self._inputs.get(word.name)
        return None if found is None else found.state

    def _folder_of(self, path: str) -> str:
        """Return a folder of libraries as the link gets it: one of the system's, or one in the tree."""
        full = os.path.normpath(os.path.join(self._record.directory, path))
        if os.path.isabs(path) and not any(one.path.startswith(f"{full}/") for one in self._record.inputs):
            return path if path.startswith(("/usr/", "/lib")) else str(self._place_of(full))
        if full.count("/") > MAX_COMPONENTS:
            raise RunFailure(RunReason.MISSING_FILE, f"a folder of more than {MAX_COMPONENTS} components: {path}")
        place = self._place_of(full)
        place.mkdir(parents=True, exist_ok=True)
        return self._named(path, place)

    def _library(self, word: LinkWord) -> None:
        found = self._inputs.get(word.name)
        if found is not None and found.state != InputState.SYSTEM:
            self._put(found.path, self._content(found))
            self._needed(found, set())

    def _file(self, word: LinkWord) -> tuple[str, ...]:
        found = self._inputs.get(word.name)
        if found is None:
            raise RunFailure(RunReason.MISSING_FILE, f"{word.name}: the corpus has no record of this input")
        if found.state == InputState.SYSTEM:
            return word.rendered(found.path)
        if found.state == InputState.SOURCE:
            return (str(self._put(f"{found.path}.o", self._object(found))),)
        place = self._put(found.path, self._content(found))
        self._needed(found, set())
        return word.rendered(self._named(word.path or "", place))

    def _named(self, path: str, place: Path) -> str:
        """Return how the link names a path of the tree: as the build did, if that stays there and is no option."""
        if os.path.isabs(path):
            return str(place)
        depth = self._record.directory.count("/")
        for part in path.split("/"):
            depth += -1 if part == ".." else 0 if part in ("", ".") else 1
            if depth < 0:
                return str(place)
        return f"./{path}" if path.startswith(("@", "-")) else path

    # --- files

    def _place_of(self, path: str) -> Path:
        return Path(f"{self._tree}{os.path.normpath(path)}")

    def _put(self, path: str, content: Path) -> Path:
        place = self._place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.name == _PRODUCT or (place.is_symlink() and Path(os.readlink(place)) != content):
            raise RunFailure(RunReason.MISSING_FILE, f"{path}: two inputs have this name")
        if not place.is_symlink():
            place.symlink_to(content)
        return place

    def _content(self, item: LinkedFile) -> Path:
        """Return what is linked as an input."""
        for digest in (item.sha256, *(member.sha256 for member in item.members)):
            self._count_parts(digest)
        other = self._outputs.get(item.sha256 or "")
        if other is not None:
            return other.path
        if item.members:
            place, replaced, missing = self._store.archive_of(
                item, self._outputs, replace=self._replace, stop=self._stop
            )
            self.linked.replaced |= dict.fromkeys(replaced)
            self.linked.missing |= dict.fromkeys(missing)
            for member in item.members:
                if member.path is not None and place == self._store.folder / (item.sha256 or ""):
                    what = f"{item.word}({member.name})"
                    self._put(member.path, self._store.original(member.path, member.sha256, what))
            return place
        if item.modules and self._replace and self._settings.objects is not None:
            # Objects that something unseen joined cannot be told apart: all of them stay.
            found = self._store.object_of(item.modules[0]) if len(item.modules) == 1 else None
            (self.linked.missing if found is None else self.linked.replaced).update(dict.fromkeys(item.modules))
            if found is not None:
                return found
        return self._store.original(item.path, item.sha256, item.word)

    def _count_parts(self, digest: str | None) -> None:
        """Count the modules of an object that was linked again: they are in this product, too."""
        part = self._outputs.get(digest or "")
        if part is not None and self._records[digest or ""].kind == LinkKind.RELOCATABLE:
            self.linked.replaced |= part.replaced
            self.linked.missing |= part.missing

    def _object(self, item: LinkedFile) -> Path:
        """Return the object to link instead of a source."""
        found = None
        if self._replace and len(item.modules) == 1:
            found = self._store.object_of(item.modules[0])
        if found is None:
            what = "the same command compiled it, and there is no object to link instead"
            raise RunFailure(RunReason.NO_OBJECT_OF_SOURCE, f"{item.word}: {what}")
        self.linked.replaced[item.modules[0]] = None
        return found

    def _needed(self, item: LinkedFile, seen: set[str]) -> None:
        """Put the libraries in place that a library of the build needs, under the names that it has for them."""
        waiting = [item]  # a chain of libraries may be longer than calls can be deep
        while waiting:
            one = waiting.pop()
            made = self._records.get(one.sha256 or "")
            if made is None or made.kind != LinkKind.SHARED:
                continue
            if one is not item:
                other = self._outputs.get(one.sha256 or "")
                content = self._store.original(one.path, one.sha256, one.word) if other is None else other.path
                for name in {os.path.basename(one.path), _soname(made) or os.path.basename(one.path)}:
                    self._put(os.path.join(os.path.dirname(one.path), name), content)
                self._rpaths[str(self._place_of(one.path).parent)] = None
            if made.output not in seen:
                seen.add(made.output)
                waiting += reversed(made.inputs)

    # --- programs

    def _linker(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Ask the driver which command links."""
        driver = self._settings.cxx if self._record.driver == "c++" else self._settings.c
        settings, timeout = self._settings, self._settings.limits.timeout
        # The options that it gives to a linker depend on the distribution.
        readable = [settings.work, *map(Path, _DISTRIBUTION)]
        limits = confine(driver[:1], readable, memory_limit=None, trusted=settings.trusted)
        try:
            commands = ask_driver(
                (*driver, "-###", *words),
                cwd=self._cwd,
                env=self._environment(),
                timeout=timeout,
                stop=self._stop,
                **limits.keywords(),
            )
        except ToolError as error:
            self._keep(error.stderr, error.returncode)
            raise RunFailure(*_reason_of(error, timeout)) from None
        if len(commands) != 1 or _PRODUCT not in commands[0]:
            detail = f"expected one command that links, the driver would run {len(commands)}"
            raise RunFailure(RunReason.LINKER_ERROR, detail)
        return commands[0]

    def _without_driver(self, words: Sequence[str], flags: Sequence[str]) -> tuple[str, ...]:
        """Return the command of a linker that the build called itself, which the driver finds as it does its own."""
        name = self._record.driver.partition(".")[2]
        own = (f"-fuse-ld={name}",) if name else ()
        asked = ("-nostdlib", *own, "-Xlinker", "-o", "-Xlinker", _PRODUCT, *words)
        argv = self._linker((*asked, *flags))
        # The driver puts its own options before those that it passes on.
        at = argv.index(_PRODUCT) - 1
        if flags and argv[1:at] != self._linker(asked)[1:at]:
            why = "the build ran the linker itself, without a compiler's options: give the linker's own, as -Wl,OPTION"
            raise RunFailure(RunReason.LINKER_ERROR, f"{printable(' '.join(flags))[:200]}: {why}")
        return (argv[0], *argv[at:])

    def _link(self, argv: tuple[str, ...]) -> None:
        settings = self._settings
        self.ended["argv"] = self.linked.argv = tuple(printable(self._shown(word)) for word in argv)
        # All links read the same folder, so that they share what starts programs behind walls.
        limits = confine(argv[:1], [settings.work], memory_limit=settings.limits.memory_limit, trusted=settings.trusted)
        timeout = settings.limits.timeout
        try:
            done = run_tool(
                argv,
                cwd=self._cwd,
                env=self._environment(),
                timeout=timeout,
                stop=self._stop,
                **limits.keywords(),
            )
        except ToolError as error:
            self._keep(error.stderr, error.returncode, error.usage)
            reason, detail = _reason_of(error, timeout, limited=limits.memory_limit is not None)
            scripts = self._scripts() if reason is RunReason.LINKER_ERROR else ""
            raise RunFailure(reason, self._shown(detail) + scripts) from None
        self._keep(done.stderr, 0, done.usage)

    def _scripts(self) -> str:
        """Return what is to be said of inputs that are scripts, whose files are not in the tree."""
        told = ""
        for word in self._record.words():
            found = self._inputs.get(word.name)
            if word.role in (Role.INPUT, Role.LIBRARY) and found is not None and found.sha256 is not None:
                with suppress(OSError, ValueError), open(self._store.folder / found.sha256, "rb") as file:
                    if _SCRIPT.search(file.read(HEAD_BYTES)):
                        told += f"; {word.name} is a linker script, and the files that it names are not followed"
        return told

    def _keep(self, stderr: str, code: int | None, usage: Usage | None = None) -> None:
        self.ended["stderr_tail"] = stderr_tail(self._shown(stderr).encode("utf-8", "surrogateescape"))
        self.ended["exit_code"] = code if code is not None and code >= 0 else None
        self.ended["signal"] = -code if code is not None and code < 0 else None
        if usage is not None:
            self.ended["wall_s"], self.ended["cpu_s"] = usage.wall_s, usage.cpu_s

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self._cwd), "LC_ALL": "C"}

    def _shown(self, text: str) -> str:
        return text.replace(str(self._tree), "").replace(f"{self._store.folder}/", "")


def _refusal(words: str, why: str) -> RunFailure:
    return RunFailure(RunReason.REFUSED_OPTION, f"{printable(words)[:200]}: {why}; `trust_corpus` runs it")


def _soname(record: LinkRecord) -> str | None:
    for word in record.words():
        if word.role is Role.FLAG and word.words[0].lstrip("-").rstrip("=") in ("soname", "h"):
            return os.path.basename(word.path or "") or None
    return None


def _member_name(name: str, number: int) -> str:
    base = os.path.basename(name)
    usable = base not in ("", ".", "..") and "\0" not in base and len(os.fsencode(base)) < _LONGEST_MEMBER
    return base if usable else f"{number}.o"


def _quoted(word: str) -> bytes:
    """Return a word as a parameter file has it."""
    return os.fsencode(_SAFE.sub(lambda found: f"\\{found[0]}", word))


def _reason_of(error: ToolError, timeout: float, *, limited: bool = False) -> tuple[RunReason, str]:
    reason, detail = classify(error, limited=limited, timeout=timeout)
    return (RunReason.LINKER_ERROR, _said(error) or detail) if reason in _OF_THE_LINKER else (reason, detail)


def _said(error: ToolError) -> str:
    """Return the line of a linker's that says most: GNU's ld puts the reason before other lines, without a mark."""
    lines = [line.strip() for line in error.stderr.splitlines() if line.strip() and "warning:" not in line]
    return next((line for line in lines if _TELLING.search(line)), lines[0] if lines else "")


def why_os(error: OSError | ValueError) -> RunFailure:
    """Return the failure of a link for which a file cannot be read or written."""
    if isinstance(error, OSError):
        return RunFailure(*classify(error))
    return RunFailure(RunReason.MISSING_FILE, os_reason(error))
