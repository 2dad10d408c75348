"""Open a corpus of any kind: a folder of modules, or a packed one."""

from __future__ import annotations

from pathlib import Path

from mlgo_corpus.corpus.folder import Corpus, read_manifest
from mlgo_corpus.corpus.links import check_inside
from mlgo_corpus.corpus.packed.corpus import PackedCorpus, is_packed
from mlgo_corpus.corpus.packed.rows import PACKED_NAME
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.folder import finish_moves
from mlgo_corpus.files.names import MANIFEST_NAME, MANIFEST_STEM, MODULES_NAME, TABLE_NAMES
from mlgo_corpus.files.remote import RemotePath, parse_place

__all__ = ["Corpus", "open_corpus"]


def open_corpus(path: Path | str) -> Corpus:
    """Open a corpus made by this tool, by LLVM's mlgo-utils or by ml-compiler-opt.

    ``path`` may be a manifest instead of its folder: ``corpus/corpus_description.train.json`` is a corpus of the
    modules of one side of a split. A packed corpus may be behind a URL.

    Raises:
        CorpusError: the manifest is missing or not valid, or the packed corpus is damaged.
        UsageError: the URL is of an unknown kind, or ``path`` is neither a path nor a URL.
    """
    if not isinstance(path, str | Path):
        found = "a Corpus, of which `path` is the folder" if isinstance(path, Corpus) else repr(path)[:80]
        raise UsageError(f"expected the folder of a corpus, or a URL, found {found}", option="corpus")
    place = parse_place(path)
    manifest = place / MANIFEST_NAME
    named = place.name.startswith(MANIFEST_STEM) and place.name.endswith(".json")
    if named and (isinstance(place, RemotePath) or not place.is_dir()):
        manifest, place = place, place.parent
    if isinstance(place, Path):
        check_inside(place, manifest.name, *TABLE_NAMES, PACKED_NAME)
    if is_packed(place):
        return PackedCorpus(place, manifest.name)
    if isinstance(place, RemotePath):
        place.check_bucket()
        raise CorpusError(f"{place}: not a packed corpus; mlgo-corpus pack makes one")
    if place.is_file():
        raise CorpusError(f"{place}: a file; expected the folder of a corpus")
    finish_moves(place / MODULES_NAME)
    return Corpus(place, read_manifest(place / manifest.name))


Corpus.open = staticmethod(open_corpus)
