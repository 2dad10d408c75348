"""Select modules of a corpus (all, some by name, a sample of all sizes), and compute a digest of a selection."""

from __future__ import annotations

import json
import operator
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from typing import Any

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import os_reason

# The number of layers of modules of similar size from which a sample is drawn.
_LAYERS = 10
# The number of modules whose producers are read: most of a corpus comes from one LLVM.
_PRODUCERS = 20


@dataclass(frozen=True, slots=True)
class ModuleChoice:
    """Which modules of a corpus to work on; by default all.

    Attributes:
        sample: how many of those that the others leave: a number, or a fraction such as ``0.1`` or ``10%``, of all
            sizes; numbers become text.
        module_filter: a regular expression that is found in the name.
        modules_file: a text file with a name on each line, or a manifest, see `read_names`.
        seed: of the sample.
    """

    sample: str | float | None = None
    module_filter: str | None = None
    modules_file: Path | str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sample is not None and not isinstance(self.sample, str):
            try:
                text = f"{Decimal(str(self.sample)):f}"
            except InvalidOperation:  # no number: an error when it is used
                text = str(self.sample)
            object.__setattr__(self, "sample", text)
        if not isinstance(self.seed, int):
            object.__setattr__(self, "seed", operator.index(self.seed))

    @property
    def is_all(self) -> bool:
        """Whether no module is left out."""
        return self.sample is None and self.module_filter is None and self.modules_file is None

    def select(self, corpus: Corpus) -> tuple[str, ...]:
        """Return the names of the chosen modules, in the corpus's order.

        Raises:
            UsageError: a parameter is not what it has to be, a name is not in the corpus, or nothing is left.
        """
        names: Sequence[str] = list(dict.fromkeys(corpus.names))  # a manifest may name a module twice
        if self.modules_file is not None:
            wanted = frozenset(listed := read_names(self.modules_file))
            there = frozenset(names)
            if unknown := [name for name in listed if name not in there]:
                more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
                detail = f"{unknown[0]} is not in the corpus{more}"
                raise UsageError(detail, option="modules_file", value=self.modules_file)
            names = [name for name in names if name in wanted]
        if self.module_filter is not None:
            try:
                pattern = re.compile(self.module_filter)
            except re.error as error:
                detail = f"not a regular expression: {error}"
                raise UsageError(detail, option="module_filter", value=self.module_filter) from error
            names = [name for name in names if pattern.search(name)]
        if self.sample is not None:
            names = draw_sample(corpus.sizes(names), _count(str(self.sample), len(names)), self.seed)
        if not names:
            raise UsageError(f"{corpus.location}: {'no module is left' if len(corpus) else 'has no modules'}")
        return tuple(names)


def draw_sample(sizes: dict[str, int], count: int, seed: int) -> list[str]:
    """Draw ``count`` names, from each layer of similar sizes its share; the result is in the order of ``sizes``."""
    generator = random.Random(seed)  # noqa: S311 - a sample, no secret
    by_size = sorted(sizes, key=lambda name: (sizes[name], name))
    layers = min(_LAYERS, count) or 1
    chosen: set[str] = set()
    for layer in range(layers):
        first, last = (len(by_size) * at // layers for at in (layer, layer + 1))
        share = count * (layer + 1) // layers - count * layer // layers
        chosen.update(generator.sample(by_size[first:last], min(share, last - first)))
    # Rounding may leave a layer smaller than its share.
    rest = [name for name in by_size if name not in chosen]
    chosen.update(generator.sample(rest, min(len(rest), count - len(chosen))))
    return [name for name in sizes if name in chosen]


def _count(sample: str, total: int) -> int:
    try:
        if sample.endswith("%"):
            fraction = float(sample[:-1]) / 100
        elif "." in sample:
            fraction = float(sample)
        else:
            number = int(sample)
            if number < 1:
                raise ValueError
            return min(number, total)
        if not 0 < fraction <= 1:
            raise ValueError
    except ValueError:
        expected = "expected a number of modules, or a fraction such as 0.1 or 10%"
        raise UsageError(expected, option="sample", value=sample) from None
    return min(total, max(1, round(fraction * total)))


def read_names(path: Path | str) -> list[str]:
    """Read a file of names, one on each line; empty lines and lines that begin with ``#`` are ignored.

    A file whose name ends in ``.json`` is the manifest of a corpus, or of one side of its split.

    Raises:
        UsageError: it cannot be read.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise UsageError(os_reason(error), option="modules_file", value=path) from error
    text = text.removeprefix("\ufeff")  # as some editors begin a file
    if path.suffix == ".json":
        try:
            modules = json.loads(text)["modules"]
            if not all(isinstance(name, str) for name in modules):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            detail = "expected the manifest of a corpus, or names, one a line, in a file without .json"
            raise UsageError(detail, option="modules_file", value=path) from None
        return list(modules)
    lines = text.split("\n")
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def newest_producer(corpus: Corpus, names: Sequence[str]) -> int | None:
    """Return the major version of the newest LLVM that made some of the modules; None if none has LLVM's numbers."""
    step = max(1, len(names) // _PRODUCERS)
    producers = corpus.iter_producers(names[::step][:_PRODUCERS])
    found = [int(match[1]) for producer in producers if (match := re.match(r"LLVM(\d+)\.", producer or ""))]
    return max(found, default=None)


def choice_key(corpus: Corpus, names: Sequence[str]) -> dict[str, Any]:
    """Return what the key of a run says of its corpus and of the modules that were chosen.

    The digest ``corpus`` depends on both; ``modules`` tells which of them differs.
    """
    chosen = sha256("".join(f"{name}\0" for name in names).encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "corpus": corpus_digest(corpus, names),
        "modules": {"chosen": len(names), "of": len(set(corpus.names)), "sha256": chosen},
    }


def corpus_digest(corpus: Corpus, names: Sequence[str]) -> str:
    """Return a digest of the chosen modules: from the corpus's own digest, else from the files' sizes and times.

    A corpus has the same digest when `mlgo_corpus.pack` has packed it.
    """
    digest = sha256()
    own = corpus.own_digest()
    digest.update(repr((own, corpus.has_thinlto, corpus.global_command_override)).encode("utf-8", "replace"))
    stamps = repeat(b"") if own is not None else corpus.iter_stamps(names)
    for name, stamp in zip(names, stamps, strict=False):
        digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
        digest.update(stamp)
    return digest.hexdigest()
