"""The names of a corpus's files, and module names that stay inside it."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.remote import parse_place

MANIFEST_NAME = "corpus_description.json"
MANIFEST_STEM = "corpus_description."
MODULES_NAME = "modules.parquet"
FUNCTIONS_NAME = "functions.parquet"
CERTIFICATE_NAME = "rebuild.parquet"
LINKS_NAME = "links.jsonl"
TABLE_NAMES = (MODULES_NAME, FUNCTIONS_NAME, CERTIFICATE_NAME)
STATE_FOLDER = ".mlgo-corpus"
BITCODE_SUFFIX = ".bc"
COMMAND_SUFFIX = ".cmd"
THINLTO_INDEX_SUFFIX = ".thinlto.bc"
MODULE_SUFFIXES = (BITCODE_SUFFIX, COMMAND_SUFFIX, THINLTO_INDEX_SUFFIX)
# A file name has at most 255 bytes; a module's has a suffix, and may have a number.
_MAX_COMPONENT_BYTES = 255 - len(THINLTO_INDEX_SUFFIX) - len("~1234567")
# A path has at most 4096 bytes: this leaves room for the corpus, an archive's own name and a member's.
_MAX_NAME_BYTES = 1000
MAX_COMPONENTS = 200
"""The most components of a name or a path from a corpus: Python makes and walks folders by a call for each."""
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_PERCENT = re.compile("%([01][0-9A-F]|7F|[89A-F][0-9A-F])")
_RESERVED_FOLDERS = frozenset({MANIFEST_NAME, *TABLE_NAMES, LINKS_NAME, STATE_FOLDER})


def distinct_names(paths: Sequence[Path | str]) -> list[str]:
    """Name each input by as much of the end of its path, or URL, as distinguishes it from the others."""
    parts = [_named_parts(path) for path in paths]
    names = [found[-1] for found in parts]
    for depth in (2, 3):
        again = Counter(names)
        names = ["/".join(p[-depth:]) if again[name] > 1 else name for p, name in zip(parts, names, strict=True)]
    again = Counter(names)
    return [f"{name} ({number})" if again[name] > 1 else name for number, name in enumerate(names, 1)]


def _named_parts(path: Path | str) -> list[str]:
    """Split a path into parts; the manifest of one side of a split is written as ``corpus:train``."""
    place = parse_place(path)  # without the query of a URL
    text = os.path.abspath(place) if isinstance(place, Path) else str(place)
    parts = [part for part in text.split("/") if part] or [text]
    name = parts[-1]
    if len(parts) > 1 and name.startswith(MANIFEST_STEM) and name.endswith(".json"):
        side = name.removeprefix(MANIFEST_STEM).removesuffix("json").removesuffix(".")
        return [*parts[:-2], f"{parts[-2]}:{side}" if side else parts[-2]]
    return parts


def safe_module_name(text: str) -> str:
    """Map an object's path to a module name that stays inside the corpus; equal paths give equal names.

    The path is normalised as text. An absolute path loses its root, a leading ``..`` becomes ``_up``. Control
    characters and bytes that are not UTF-8 are written ``%XX``. A folder whose name would collide with a module's
    file gets a ``_``, and a component too long for a file name ends in a hash of itself.
    """
    parts: list[str] = []
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part == ".." and parts and parts[-1] != "_up":
            parts.pop()
        else:
            parts.append("_up" if part == ".." else part)
    if not parts:
        parts = ["module"]
    size = len("/".join(parts).encode("utf-8", "surrogatepass")) if len(text) > _MAX_NAME_BYTES // 4 else 0
    if size > _MAX_NAME_BYTES or len(parts) > MAX_COMPONENTS:
        parts = [f"long~{_short_digest('/'.join(parts))}", parts[-1]]
    last = len(parts) - 1
    safe = [_safe_component(part, is_folder=index < last) for index, part in enumerate(parts)]
    if len(safe) > 1 and safe[0] in _RESERVED_FOLDERS:
        safe[0] += "_"
    return "/".join(safe)


def _safe_component(part: str, *, is_folder: bool) -> str:
    if not part.isprintable():
        part = _UNPRINTABLE.sub(_percent, part)
    if part.endswith((BITCODE_SUFFIX, COMMAND_SUFFIX) if is_folder else ".thinlto"):
        part += "_"
    if len(part) > _MAX_COMPONENT_BYTES // 4 and len(part.encode()) > _MAX_COMPONENT_BYTES:
        part = part.encode()[: _MAX_COMPONENT_BYTES - 17].decode("utf-8", "ignore") + "~" + _short_digest(part)
    return part


def _short_digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _percent(match: re.Match[str]) -> str:
    # Python decodes a byte that is not UTF-8 to a surrogate in this range; other surrogates come from JSON escapes.
    escaped_byte = "\udc80" <= match[0] <= "\udcff"
    encoded = match[0].encode("utf-8", "surrogateescape" if escaped_byte else "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


def unescaped_name(name: str) -> str:
    """Return a module's name with the bytes that `safe_module_name` wrote as ``%XX``."""
    return _PERCENT.sub(lambda match: os.fsdecode(bytes.fromhex(match[1])), name)


def numbered_name(name: str, number: int) -> str:
    """Return the name of the ``number``-th object called ``name``: ``a/b.o`` becomes ``a/b~2.o``."""
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    if not stem:  # a name that begins with a dot
        stem, dot, suffix = base, "", ""
    return f"{folder}{slash}{stem}~{number}{dot}{suffix}"


class NameRegistry:
    """Hands out each module name once, and never one that is a folder of another.

    The result depends on the order of the calls only, so that the same inputs always get the same names.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._folders: set[str] = set()
        self._next: dict[str, int] = {}
        self._moved: dict[str, str] = {}

    def claim(self, wanted: str) -> str:
        """Return ``wanted``, or a numbered form of it that is free."""
        while folder := next((folder for folder in _folders(wanted) if folder in self._names), None):
            if folder not in self._moved:
                self._moved[folder] = self._numbered(folder)
            wanted = self._moved[folder] + wanted[len(folder) :]
        name = self._numbered(wanted) if wanted in self._names or wanted in self._folders else wanted
        self._names.add(name)
        self._folders.update(_folders(name))
        return name

    def _numbered(self, name: str) -> str:
        while True:
            number = self._next.get(name, 2)
            self._next[name] = number + 1
            candidate = numbered_name(name, number)
            if candidate not in self._names and candidate not in self._folders:
                return candidate


def _folders(name: str) -> Iterable[str]:
    at = name.find("/")
    while at >= 0:
        yield name[:at]
        at = name.find("/", at + 1)


def checked_name(name: str) -> str:
    """Return a name from a manifest if it stays inside the corpus.

    Raises:
        CorpusError: it is empty or absolute, holds ``..``, a NUL byte or a lone surrogate, or has too many components.
    """
    if not name or name.startswith("/") or "\0" in name or ".." in name.split("/"):
        raise CorpusError("this module name leaves the corpus folder", name)
    if name.count("/") >= MAX_COMPONENTS:
        raise CorpusError(f"this module name has more than {MAX_COMPONENTS} components", name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise CorpusError("this module name is not one that a file can have", name) from error
    return name


def is_name(name: str) -> bool:
    """Return True if a name from a manifest stays inside the corpus, as `checked_name` checks."""
    try:
        checked_name(name)
    except CorpusError:
        return False
    return True


IMPORTED_SUFFIX = ".3.import.bc"
"""What lld's --save-temps=import appends to an object's name."""
