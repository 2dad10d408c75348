"""The relink stage: link the products of a corpus's build again, with other objects, and measure them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.text import several
from mlgo_corpus.runs.links.corpus import run_relink
from mlgo_corpus.runs.links.run import RelinkReport


def relink_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    objects: Path | str | None = None,
    ld_flags: Sequence[str] | str = (),
    compiler: str | None = None,
    trust_corpus: bool = False,
    timeout: float = 600.0,
    jobs: int | None = None,
    force: bool = False,
    progress: Callable[[int, int, int], None] | None = None,
) -> RelinkReport:
    """Link the programs and shared libraries of a corpus's build again, with other objects, and measure them.

    The build's tree is read, and not changed. An input that is no longer what the build linked makes a row with the
    reason. Nothing is left of an interrupted call.

    Args:
        corpus: a corpus that `build_corpus` made.
        output: a folder for the products and the table of them (`mlgo_corpus.runs.links.table`).
        objects: a folder with other objects, named as ``keep_objects`` of a trace names them; for a module without one
            the build's own is linked. By default all are the build's own, which should give the same products.
        ld_flags: options to add to each link, as the compiler's driver takes them. With ``objects`` the originals are
            linked with them, too, so that sizes differ by the objects only; without, the original is the build's.
        compiler: the clang whose driver and linker are used; by default the build's, if it is found.
        trust_corpus: the corpus is one's own: refuse no option of its links, and link without walls and limits.
        timeout: seconds that one link may take.
        jobs: how many linkers to run at once; by default the CPUs this process may use.
        force: replace an earlier relink.
        progress: called with (products done, of them failed, products in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus, or it has no record of links.
        MlgoCorpusError: the products cannot be written.
    """
    return run_relink(
        corpus,
        output_here(output, "a product", "a folder"),
        objects=objects,
        ld_flags=several(ld_flags),
        compiler=compiler,
        trust_corpus=trust_corpus,
        limits=Limits(timeout),
        jobs=jobs,
        force=force,
        progress=progress,
    )
