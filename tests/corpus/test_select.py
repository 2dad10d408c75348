"""Which modules are chosen, and what tells a choice from another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus import Corpus
from mlgo_corpus.compilers.probe import PROBE_DATA
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.corpus.select import ModuleChoice, corpus_digest, draw_sample, newest_producer
from mlgo_corpus.errors import UsageError


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Thirty modules of 100 to 3000 bytes."""
    return make_corpus(tmp_path / "corpus", [f"d{number % 3}/m{number:02d}.o" for number in range(30)])


def make_corpus(folder: Path, names: Sequence[str], *, thinlto: bool = False) -> Corpus:
    for number, name in enumerate(names, 1):
        path = folder / f"{name}.bc"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"BC\xc0\xde" + bytes(100 * number))
    write_manifest(folder / "corpus_description.json", names, has_thinlto=thinlto, override=None)
    return Corpus.open(folder)


def test_all_in_the_corpus_order(corpus: Corpus) -> None:
    assert ModuleChoice().select(corpus) == corpus.names


def test_by_pattern(corpus: Corpus) -> None:
    assert ModuleChoice(module_filter="m0[34]").select(corpus) == ("d0/m03.o", "d1/m04.o")
    assert ModuleChoice(module_filter="^d2/.*8").select(corpus) == ("d2/m08.o",)
    with pytest.raises(UsageError, match=r"^module_filter \(: not a regular expression: missing \)"):
        ModuleChoice(module_filter="(").select(corpus)
    with pytest.raises(UsageError, match=r"/corpus: no module is left$"):
        ModuleChoice(module_filter="x").select(corpus)


def test_a_sample_may_be_a_number(corpus: Corpus) -> None:
    for number, text in ((0.5, "0.5"), (3, "3"), (np.float32(0.4), "0.4"), (np.int64(2), "2"), (1e-05, "0.00001")):
        assert ModuleChoice(sample=number).sample == text
        assert ModuleChoice(sample=number, seed=np.int64(1)).select(corpus) == ModuleChoice(text, seed=1).select(corpus)
    for wrong in (2.5, True, float("nan"), object()):
        with pytest.raises(UsageError, match=r"^sample .*: expected a number of modules, or a fraction"):
            ModuleChoice(sample=wrong).select(corpus)  # type: ignore[arg-type]


def test_by_a_file_of_names(corpus: Corpus, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_bytes(b"# some\r\nd1/m01.o\r\n\r\n  d0/m00.o \nd1/m01.o")
    assert ModuleChoice(modules_file=names).select(corpus) == ("d0/m00.o", "d1/m01.o")
    assert ModuleChoice(modules_file=names, module_filter="1").select(corpus) == ("d1/m01.o",)
    names.write_bytes(b"\xef\xbb\xbfd0/m00.o\n")
    assert ModuleChoice(modules_file=names).select(corpus) == ("d0/m00.o",)
    names.write_text("d0/m00.o\nmoon.o\nsun.o\n")
    with pytest.raises(UsageError, match=r"names: moon\.o is not in the corpus \(and 1 more\)$"):
        ModuleChoice(modules_file=names).select(corpus)
    names.write_text("#\n")
    with pytest.raises(UsageError, match="no module is left"):
        ModuleChoice(modules_file=names).select(corpus)
    with pytest.raises(UsageError, match=r"modules_file .*gone: No such file or directory$"):
        ModuleChoice(modules_file=tmp_path / "gone").select(corpus)


def test_names_with_strange_characters(tmp_path: Path) -> None:
    names = ["a\x0bb\u2028c.o", "caf\udce9.o"]
    corpus = make_corpus(tmp_path / "c", names)
    (tmp_path / "names").write_bytes(os.fsencode("\n".join(names)))
    assert ModuleChoice(modules_file=tmp_path / "names").select(corpus) == tuple(names)
    assert len(corpus_digest(corpus, names)) == 64


def test_a_large_list_is_quick(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(20_000)]
    write_manifest(tmp_path / "corpus_description.json", names, has_thinlto=False, override=None)
    (tmp_path / "names").write_text("\n".join(names[::2]))
    assert ModuleChoice(modules_file=tmp_path / "names").select(Corpus.open(tmp_path)) == tuple(names[::2])


def test_a_name_counts_once(tmp_path: Path) -> None:
    assert ModuleChoice().select(make_corpus(tmp_path, ["a", "b", "a"])) == ("a", "b")


def test_no_modules_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"/c: has no modules$"):
        ModuleChoice().select(make_corpus_without(tmp_path / "c"))


def make_corpus_without(folder: Path) -> Corpus:
    folder.mkdir()
    return make_corpus(folder, [])


@pytest.mark.parametrize(
    ("sample", "count"),
    [("1", 1), ("7", 7), ("30", 30), ("99", 30), ("0.1", 3), ("10%", 3), ("1%", 1), ("1.0", 30), ("100%", 30)],
)
def test_sample_sizes(corpus: Corpus, sample: str, count: int) -> None:
    found = ModuleChoice(sample=sample).select(corpus)
    assert len(set(found)) == len(found) == count
    assert list(found) == [name for name in corpus.names if name in found]


@pytest.mark.parametrize("sample", ["0", "-1", "0.0", "1.5", "101%", "0%", "x", "", "%", "nan%", "1e3", "-0.5", "."])
def test_samples_that_are_none(corpus: Corpus, sample: str) -> None:
    with pytest.raises(UsageError) as caught:
        ModuleChoice(sample=sample).select(corpus)
    assert str(caught.value) == f"sample {sample}: expected a number of modules, or a fraction such as 0.1 or 10%"


def test_a_sample_is_of_all_sizes_and_of_its_seed(corpus: Corpus) -> None:
    for seed in range(20):
        found = ModuleChoice(sample="10", seed=seed).select(corpus)
        assert found == ModuleChoice(sample="10", seed=seed).select(corpus)
        # One of each three of like size.
        assert sorted(corpus.names.index(name) // 3 for name in found) == list(range(10))
    assert len({ModuleChoice(sample="10", seed=seed).select(corpus) for seed in range(20)}) > 15
    assert ModuleChoice(sample="2", module_filter="d0").select(corpus) != ModuleChoice(
        sample="2", module_filter="d1"
    ).select(corpus)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(0, 70), st.integers(0, 5))
def test_samples_of_anything(sizes: list[int], count: int, seed: int) -> None:
    named = {f"m{number}": size for number, size in enumerate(sizes)}
    found = draw_sample(named, count, seed)
    assert len(found) == min(count, len(sizes))
    assert found == [name for name in named if name in set(found)]


def test_a_module_that_is_missing_can_be_drawn(corpus: Corpus) -> None:
    corpus["d0/m00.o"].bitcode_path.unlink()
    assert len(ModuleChoice(sample="30").select(corpus)) == 30


def test_the_newest_producer(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, ["a", "b", "c"])
    assert newest_producer(corpus, corpus.names) is None
    shutil.copy(PROBE_DATA / "llvm-19.bc", tmp_path / "b.bc")
    assert newest_producer(corpus, corpus.names) == 19
    shutil.copy(PROBE_DATA / "llvm-22.bc", tmp_path / "a.bc")
    (tmp_path / "c.bc").unlink()
    assert newest_producer(corpus, corpus.names) == 22
    assert newest_producer(corpus, ["b"]) == 19
    assert newest_producer(corpus, []) is None


@pytest.mark.parametrize(
    ("producer", "major"),
    [
        ("LLVM22.1.8", 22),
        ("LLVM18.1.7-rust-1.80.0-stable", 18),
        ("APPLE_1_1500.3.9.4_0", None),
        ("odd", None),
        (None, None),
    ],
)
def test_producers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, producer: str | None, major: int | None) -> None:
    """Apple counts in another way: its numbers do not say which LLVM it was."""
    monkeypatch.setattr("mlgo_corpus.corpus.folder.read_producer", lambda _: producer)
    assert newest_producer(make_corpus(tmp_path, ["a"]), ["a"]) == major


def test_the_digest_tells_choices_apart(corpus: Corpus) -> None:
    names = corpus.names
    whole = corpus_digest(corpus, names)
    assert whole == corpus_digest(Corpus.open(corpus.path), names)
    digests = {whole, corpus_digest(corpus, names[1:]), corpus_digest(corpus, names[::-1])}
    path = corpus[names[0]].bitcode_path
    path.write_bytes(b"BC\xc0\xde")
    digests.add(corpus_digest(corpus, names))
    os.utime(path, ns=(1, 1))
    digests.add(corpus_digest(corpus, names))
    path.unlink()
    digests.add(corpus_digest(corpus, names))
    manifest = corpus.path / "corpus_description.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "global_command_override": ["-cc1"]}))
    digests.add(corpus_digest(Corpus.open(corpus.path), names))
    manifest.write_text(json.dumps({**content, "has_thinlto": True}))
    digests.add(corpus_digest(Corpus.open(corpus.path), names))
    assert len(digests) == 8


def test_a_damaged_table_of_modules_is_none(corpus: Corpus) -> None:
    before = corpus_digest(corpus, corpus.names)
    (corpus.path / "modules.parquet").write_bytes(b"PAR1")
    assert corpus_digest(corpus, corpus.names) == before
