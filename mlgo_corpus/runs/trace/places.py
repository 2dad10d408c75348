"""The folders for copies of logs and objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import os_reason


def make_places(places: Mapping[str, Path | None], output: Path, corpus: Corpus, *, make: bool) -> None:
    """Check the folders for copies, all of them, and then make them.

    Args:
        places: the folders by the parameters that name them.
        output: the dataset.
        corpus: the corpus.
        make: whether they are made, too.

    Raises:
        UsageError: a folder is the dataset's or the corpus's, or cannot be made.
    """
    wanted = {option: place for option, place in places.items() if place is not None}
    for option, place in wanted.items():
        try:
            for whose, folder in (("dataset's", output), ("corpus's", corpus.path)):
                if place.resolve().is_relative_to(folder.resolve()):
                    raise UsageError(f"is in the {whose} folder; name another one", option=option, value=place)
            if place.exists() and not place.is_dir():
                raise UsageError("expected a folder, found a file", option=option, value=place)
        except OSError as error:
            raise UsageError(os_reason(error), option=option, value=place) from error
    for option, place in wanted.items() if make else ():
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(os_reason(error), option=option, value=place) from error
