"""A corpus's split on disk: a manifest per side, and the column of ``modules.parquet``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgo_corpus.corpus.modules import read_module_columns, rewrite_split
from mlgo_corpus.corpus.split.sides import SIDES
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.folder import finish_moves, whole_files
from mlgo_corpus.files.names import MANIFEST_NAME, MANIFEST_STEM, MODULES_NAME
from mlgo_corpus.files.remote import RemotePath, parse_place
from mlgo_corpus.files.tables import read_metadata

if TYPE_CHECKING:
    import pyarrow as pa


def side_manifest(folder: Path, side: str) -> Path:
    """Return the path of a side's manifest, which `Corpus.open` opens as a corpus."""
    return folder / f"{MANIFEST_STEM}{side}.json"


def names_a_side(corpus: Path | str) -> bool:
    """Return whether ``corpus`` is the manifest of a side, and not a corpus's folder, URL or own manifest."""
    place = parse_place(corpus)
    if place.name == MANIFEST_NAME or not (place.name.startswith(MANIFEST_STEM) and place.name.endswith(".json")):
        return False
    return isinstance(place, RemotePath) or not place.is_dir()


@dataclass(frozen=True, slots=True)
class Split:
    """A corpus's split, as its table records it.

    Attributes:
        folder: the corpus.
        options: the options that the split was made with.
        digest: the digest of the corpus that was divided.
        sides: the modules' sides, by name.
    """

    folder: Path
    options: dict[str, Any]
    digest: str | None
    sides: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> Split | None:
        """Return a corpus's split, or None if it has none."""
        table = folder / MODULES_NAME
        finish_moves(table)
        with suppress(CorpusError):
            about = read_metadata(table)
            if isinstance(about.get("split"), dict):
                rows = read_module_columns(table, ("module", "split"))
                named = zip(*(column.to_pylist() for column in rows.columns), strict=True)
                sides = {name: side for name, side in named if side is not None}
                return cls(folder, about["split"], about.get("corpus_digest"), sides)
        return None

    def keep(self, about: Mapping[str, Any]) -> bool:
        """Put the split into a rewritten table if the corpus is the same; else delete the sides' manifests.

        Return whether the split was kept.

        Raises:
            OSError: something cannot be written.
        """
        if about.get("corpus_digest") != self.digest:
            for side in SIDES:
                side_manifest(self.folder, side).unlink(missing_ok=True)
            return False

        def sides(group: pa.Table) -> list[str | None]:
            return [self.sides.get(name) for name in group["module"].to_pylist()]

        table = self.folder / MODULES_NAME
        with whole_files(table) as files:
            rewrite_split(table, files.make(table), sides, {**about, "split": self.options})
        return True
