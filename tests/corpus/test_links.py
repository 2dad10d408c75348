"""Links in a corpus: those that stay in it are followed, those that lead out of it put nothing into what is made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import (
    Corpus,
    combine_corpora,
    corpus_stats,
    dedup_corpus,
    make_corpus,
    pack_corpus,
    unpack_corpus,
    verify_corpus,
)
from mlgo_corpus.corpus.assemble import Placing
from mlgo_corpus.errors import CorpusError, MlgoCorpusError
from tests.corpus.test_assemble import corpus, make
from tests.handmade import bitcode

SECRET = b"-cc1\0root:x:0:0:root\0"
OUT = "a link leads out of the corpus"


def packed_and_unpacked(source: Path, output: Path) -> None:
    pack_corpus(source, output / "packed")
    unpack_corpus(output / "packed", output / "unpacked")


MAKERS: dict[str, Callable[[Path, Path], Any]] = {
    "pack": packed_and_unpacked,
    "combine": lambda source, output: combine_corpora([source], output),
    "copy": lambda source, output: combine_corpora([source], output, placing="copy"),
    "reference": lambda source, output: combine_corpora([source], output, placing="reference"),
    "make": make_corpus,
    "dedup": lambda source, output: dedup_corpus(source, output),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A corpus whose links lead to files of this machine, by every way there is; one module is in order."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    (outside / "secret.bc").write_bytes(bitcode(b"secret"))
    (outside / "secret.cmd").write_bytes(SECRET)
    made = corpus(tmp_path / "hostile", {name: bitcode(name.encode()) for name in ("good", "cmd", "bc", "d/in")})
    for name, target in (("cmd.cmd", "secret"), ("bc.bc", "secret.bc")):
        (made / name).unlink(missing_ok=True)
        (made / name).symlink_to(outside / target)
    (made / "d").rename(made / "e")
    (made / "e").rename(outside / "e")
    (outside / "e" / "in.cmd").write_bytes(SECRET)
    (made / "d").symlink_to("../outside/e")
    return made


@pytest.mark.parametrize("verb", MAKERS)
def test_nothing_from_outside_is_put_into_what_is_made(hostile: Path, tmp_path: Path, verb: str) -> None:
    MAKERS[verb](hostile, tmp_path / "made")
    shutil.rmtree(hostile)
    shutil.rmtree(tmp_path / "outside")
    everything = b"".join(path.read_bytes() for path in (tmp_path / "made").rglob("*") if path.is_file())
    assert b"root:x:0:0" not in everything
    assert bitcode(b"secret") not in everything


def test_each_such_module_is_told_of(hostile: Path) -> None:
    told = {module: detail for module, _, detail in verify_corpus(hostile).problems}
    assert told["bc"] == f"cannot read bc.bc: {OUT}"
    assert told["d/in"] == f"cannot read in.bc: {OUT}; cannot read in.cmd: {OUT}"
    assert OUT in told["cmd"]
    assert "good" not in told
    assert Corpus.open(hostile)["good"].bitcode() == bitcode(b"good")
    with pytest.raises(CorpusError, match=rf"^cmd: cannot read cmd\.cmd: {OUT}$"):
        Corpus.open(hostile)["cmd"].own_command()


@pytest.mark.parametrize("name", ["corpus_description.json", "modules.parquet", "functions.parquet", "rebuild.parquet"])
def test_a_manifest_or_a_table_from_outside_is_refused(tmp_path: Path, name: str) -> None:
    made = corpus(tmp_path / "made", {"a": bitcode(b"a")})
    if (made / name).exists():
        (made / name).rename(tmp_path / "outside")
    (made / name).symlink_to("../outside")
    for verb in (corpus_stats, lambda folder: pack_corpus(folder, tmp_path / "packed")):
        with pytest.raises(CorpusError, match=rf"^{made / name}: {OUT}, and is not followed; replace it by a copy"):
            verb(made)


def test_another_manifest_from_outside_is_not_packed(tmp_path: Path) -> None:
    made = corpus(tmp_path / "made", {"a": bitcode(b"a")})
    (tmp_path / "outside").write_bytes(SECRET)
    (made / "corpus_description.x.json").symlink_to("../outside")
    with pytest.raises(CorpusError, match=OUT):
        pack_corpus(made, tmp_path / "packed")


def test_a_packed_corpus_with_links_is_refused(tmp_path: Path) -> None:
    pack_corpus(corpus(tmp_path / "made", {"a": bitcode(b"a")}), tmp_path / "packed")
    (tmp_path / "packed/data").rename(tmp_path / "data")
    (tmp_path / "packed/data").symlink_to("../data")
    with pytest.raises(CorpusError, match=rf"/packed/data/part-00000\.parquet: {OUT}"):
        unpack_corpus(tmp_path / "packed", tmp_path / "unpacked")


def test_links_that_stay_inside_and_a_linked_corpus_are_followed(tmp_path: Path) -> None:
    made = corpus(tmp_path / "made", {"a": bitcode(b"a"), "d/b": bitcode(b"b"), "e/b": None})
    shutil.rmtree(made / "e")
    (made / "e").symlink_to("d")
    (made / "a.bc").rename(made / "store")
    (made / "a.bc").symlink_to("store")
    (tmp_path / "link").symlink_to("made")
    for place in (made, tmp_path / "link"):
        opened = Corpus.open(place)
        assert [opened[name].bitcode() for name in ("a", "d/b", "e/b")] == [bitcode(b"a"), bitcode(b"b"), bitcode(b"b")]


def test_a_download_of_hugging_faces_is_followed(tmp_path: Path) -> None:
    made = corpus(tmp_path / "name/snapshots/0123/corpus", {"a": bitcode(b"a"), "b": bitcode(b"b")})
    (tmp_path / "name/blobs").mkdir()
    for number, path in enumerate(sorted(path for path in made.rglob("*") if path.is_file())):
        path.rename(tmp_path / f"name/blobs/{number}")
        path.symlink_to(f"../../../blobs/{number}")
    assert Corpus.open(made)["a"].bitcode() == bitcode(b"a")
    (made / "b.bc").unlink()
    (tmp_path / "name/secret").write_bytes(bitcode(b"b"))
    (made / "b.bc").symlink_to("../../../secret")
    with pytest.raises(CorpusError, match=OUT):
        Corpus.open(made)["b"].bitcode()


def test_a_corpus_made_with_reference_is_followed_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = corpus(tmp_path / "source", {"a": bitcode(b"a")})
    combine_corpora([source], tmp_path / "combined", placing="reference")
    make(tmp_path / "made", source, placing=Placing.REFERENCE)
    for folder, name in ((tmp_path / "combined", "source/a"), (tmp_path / "made", "a")):
        assert Corpus.open(folder)[name].bitcode() == bitcode(b"a")
        pack_corpus(folder, tmp_path / f"packed-{folder.name}")
        packed = Corpus.open(tmp_path / f"packed-{folder.name}")
        assert packed[name].bitcode() == bitcode(b"a")
    shutil.copytree(tmp_path / "made", tmp_path / "stranger", symlinks=True)  # with its mark
    with pytest.raises(CorpusError, match=OUT):
        Corpus.open(tmp_path / "stranger")["a"].bitcode()
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "another-user"))
    with pytest.raises(MlgoCorpusError, match=OUT):
        Corpus.open(tmp_path / "made")["a"].bitcode()
