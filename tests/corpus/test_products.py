"""Which modules are linked with each other, by what is known of a build's links."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.corpus import products
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.errors import CorpusError


def link(name: str, directory: str = "/b") -> products.LinkRecord:
    return products.LinkRecord(name, "program", "c", "clang", directory, ("a.o", "-o", name), f"/b/{name}")


def read(folder: Path, *links: products.LinkRecord) -> tuple[products.LinkRecord, ...]:
    write_manifest(folder / "corpus_description.json", [], has_thinlto=False, override=None)
    products.write_links(folder / "links.jsonl", links)
    return products.read_links(open_corpus(folder))


def test_two_links_of_one_name_are_an_error(tmp_path: Path) -> None:
    assert read(tmp_path, link("one"), link("two")) == (link("one"), link("two"))
    with pytest.raises(CorpusError, match=r"links\.jsonl: line 4: not a link: a link above has its name; build again$"):
        read(tmp_path, link("one"), link("two"), link("one"))


def test_a_path_of_a_link_has_a_bounded_depth(tmp_path: Path) -> None:
    deepest = "/d" * 200
    assert read(tmp_path, link("one", deepest)) == (link("one", deepest),)
    with pytest.raises(
        CorpusError, match=r"line 2: not a link: expected a path of at most 200 components; build again$"
    ):
        read(tmp_path, link("one", f"{deepest}/d"))


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("12345678"), min_size=1, unique=True)))
def test_modules_of_products_that_have_one_in_common(built: dict[str, list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "products_of", lambda _: built)
        found = products.linked_together(None)  # type: ignore[arg-type]
    together = {(one, other) for one in built for other in built if set(built[one]) & set(built[other])}
    for _ in built:  # the closure, step by step
        together |= {(one, last) for one, middle in together for first, last in together if middle == first}
    assert set(found) == set(built)
    assert {(one, other) for one in found for other in found if found[one] == found[other]} == together


def test_a_corpus_without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "known_links", lambda _: None)
    assert products.linked_together(None) == {}  # type: ignore[arg-type]
