"""The corpus on disk: names that stay inside, manifests as upstream writes them, modules that travel light."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus import Corpus
from mlgo_corpus.corpus.folder import Module, remove_module_files, write_manifest
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.names import NameRegistry, checked_name, numbered_name, safe_module_name, unescaped_name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("lua/lvm.o", "lua/lvm.o"),
        ("./lua//lvm.o", "lua/lvm.o"),
        ("lua/../zlib/adler32.o", "zlib/adler32.o"),
        ("/build/x/a.o", "build/x/a.o"),
        ("../a.o", "_up/a.o"),
        ("../../a.o", "_up/_up/a.o"),
        ("a/../../b.o", "_up/b.o"),
        ("", "module"),
        ("..", "_up"),
        ("a\nb.o", "a%0Ab.o"),
        ("a\udcffb.o", "a%FFb.o"),
        ("a\ud800b.o", "a%ED%A0%80b.o"),
        ("größe.o", "größe.o"),
        ("x.bc/a.o", "x.bc_/a.o"),
        ("x.cmd/a.o", "x.cmd_/a.o"),
        ("a.thinlto", "a.thinlto_"),
        ("modules.parquet/a.o", "modules.parquet_/a.o"),
        (".mlgo-corpus/a.o", ".mlgo-corpus_/a.o"),
        ("x/.mlgo-corpus/a.o", "x/.mlgo-corpus/a.o"),
    ],
)
def test_names_stay_inside(path: str, name: str) -> None:
    assert safe_module_name(path) == name


@given(st.text(alphabet=st.characters(codec=None, exclude_characters=""), max_size=600))
def test_any_text_gives_a_name_that_can_be_a_file(text: str) -> None:
    name = safe_module_name(text)
    parts = name.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert all(len((part + ".thinlto.bc").encode()) <= 255 for part in parts)
    assert "\0" not in name
    assert safe_module_name(name) == name


def test_a_name_tells_the_bytes_of_its_path() -> None:
    assert unescaped_name("a%0A/%FF%C3b%41%7F.o") == "a\n/\udcff\udcc3b%41\x7f.o"


def test_a_name_has_a_bounded_depth(tmp_path: Path) -> None:
    deepest = "/".join("d" * 200)
    assert safe_module_name(deepest) == checked_name(deepest) == deepest
    assert safe_module_name(f"{deepest}/a.o") == "long~48f9fa1cdd8c863e/a.o"
    module = Module(tmp_path, "/".join("d" * 1300))
    with pytest.raises(CorpusError, match="this module name has more than 200 components"):
        module.bitcode()
    with pytest.raises(CorpusError, match="this module name has more than 200 components"):
        remove_module_files(tmp_path, module.name)


def test_long_components_stay_apart() -> None:
    one, two = safe_module_name("x" * 300 + "1"), safe_module_name("x" * 300 + "2")
    assert one != two
    assert len(one) == len(two) == 236


@pytest.mark.parametrize(
    ("name", "numbered"),
    [
        ("a/b.o", "a/b~2.o"),
        ("b", "b~2"),
        ("a/b.pic.o", "a/b~2.pic.o"),
        (".hidden", ".hidden~2"),
        ("a.d/b", "a.d/b~2"),
    ],
)
def test_numbered_names_keep_their_suffix(name: str, numbered: str) -> None:
    assert numbered_name(name, 2) == numbered


def test_names_are_given_once() -> None:
    registry = NameRegistry()
    asked = ["a.o", "a.o", "a~2.o", "a.o", "lib.a", "lib.a/x.o", "lib.a/y.o", "lib.a", "p/q", "p"]
    given_names = [registry.claim(name) for name in asked]
    assert given_names == [
        "a.o", "a~2.o", "a~2~2.o", "a~3.o", "lib.a", "lib~2.a/x.o", "lib~2.a/y.o", "lib~3.a", "p/q", "p~2",
    ]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a~2"]), min_size=1, max_size=3).map("/".join), max_size=30))
def test_no_name_is_another_or_its_folder(asked: list[str]) -> None:
    registry = NameRegistry()
    names = [registry.claim(name) for name in asked]
    assert len(set(names)) == len(names)
    for name in names:
        assert not any(other.startswith(name + "/") for other in names)


UPSTREAM_MANIFEST = """{
  "global_command_override": [
    "<UNSPECIFIED>"
  ],
  "has_thinlto": true,
  "modules": [
    "a/b.o",
    "gr\\u00f6\\u00dfe.o"
  ]
}"""


def test_the_manifest_is_upstreams_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "corpus_description.json"
    write_manifest(path, ["a/b.o", "größe.o"], has_thinlto=True, override=("<UNSPECIFIED>",))
    assert path.read_text(encoding="ascii") == UPSTREAM_MANIFEST
    write_manifest(path, [], has_thinlto=False, override=None)
    assert path.read_text(encoding="ascii") == '{\n  "has_thinlto": false,\n  "modules": []\n}'
    assert os.listdir(tmp_path) == ["corpus_description.json"]


def upstream_corpus(folder: Path, **manifest: object) -> Path:
    """Lay out a corpus as LLVM's extract_ir does: NUL-terminated commands, names with ``.o``."""
    (folder / "lib").mkdir()
    for name, options in (("main.o", ["-cc1", "-O2"]), ("lib/f.o", ["-cc1", "-D", "x=\xff\n"])):
        (folder / f"{name}.bc").write_bytes(b"BC\xc0\xde" + name.encode())
        (folder / f"{name}.cmd").write_bytes(b"".join(option.encode("latin-1") + b"\0" for option in options))
    description = {"has_thinlto": False, "modules": ["main.o", "lib/f.o"], **manifest}
    (folder / "corpus_description.json").write_text(json.dumps(description, indent=2))
    return folder


def test_a_corpus_in_upstreams_layout_opens(tmp_path: Path) -> None:
    corpus = Corpus.open(upstream_corpus(tmp_path))
    assert len(corpus) == 2
    assert [module.name for module in corpus] == ["main.o", "lib/f.o"]
    module = corpus["lib/f.o"]
    assert "lib/f.o" in corpus
    assert module in corpus
    assert "nothing.o" not in corpus
    assert module.bitcode() == b"BC\xc0\xdelib/f.o"
    assert [os.fsencode(option) for option in module.command()] == [b"-cc1", b"-D", b"x=\xff\n"]
    assert module.thinlto_index_path is None
    with pytest.raises(KeyError):
        corpus["nothing.o"]


def test_an_override_replaces_every_command(tmp_path: Path) -> None:
    corpus = Corpus.open(upstream_corpus(tmp_path, has_thinlto=True, global_command_override=["-cc1", "-Oz"]))
    assert [module.command() for module in corpus] == [("-cc1", "-Oz")] * 2
    assert corpus["main.o"].thinlto_index_path == tmp_path / "main.o.thinlto.bc"


def test_an_empty_override_counts_as_given(tmp_path: Path) -> None:
    assert [module.command() for module in Corpus.open(upstream_corpus(tmp_path, global_command_override=[]))] == [
        (),
        (),
    ]


def test_modules_pickle_as_paths(tmp_path: Path) -> None:
    corpus = Corpus.open(upstream_corpus(tmp_path))
    (tmp_path / "main.o.bc").write_bytes(b"BC\xc0\xde" + bytes(1_000_000))
    modules = list(corpus)
    pickled = pickle.dumps(modules)
    assert len(pickled) < 1000
    assert pickle.loads(pickled) == modules
    assert len(pickle.loads(pickled)[0].bitcode()) == 1_000_004


def test_modules_are_found_from_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    upstream_corpus(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    corpus = Corpus.open("there")
    monkeypatch.chdir("/")
    assert corpus["lib/f.o"].bitcode() == b"BC\xc0\xdelib/f.o"
    assert (corpus.location, corpus.shown, corpus.name) == ("there", Path("there"), "there")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", "a\0b"])
def test_a_manifest_cannot_point_outside(tmp_path: Path, name: str) -> None:
    module = Module(tmp_path, name)
    with pytest.raises(CorpusError, match="this module name leaves the corpus folder"):
        module.bitcode()
    with pytest.raises(CorpusError):
        remove_module_files(tmp_path, name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a corpus: it has no corpus_description.json"),
        ("{", "not JSON"),
        ("[]", "expected a JSON object, found list"),
        ("{}", "expected a list of strings under 'modules'"),
        ('{"has_thinlto": null, "modules": []}', "expected true or false under 'has_thinlto'"),
        ('{"has_thinlto": false}', "expected a list of strings under 'modules'"),
        ('{"has_thinlto": false, "modules": [1]}', "expected a list of strings under 'modules'"),
        (
            '{"has_thinlto": false, "modules": [], "global_command_override": "-O2"}',
            "expected a list of strings under 'global_command_override'",
        ),
    ],
)
def test_what_is_no_corpus_says_so(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "corpus_description.json").write_text(content)
    with pytest.raises(CorpusError, match=message) as caught:
        Corpus.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_manifest_that_does_not_speak_of_thinlto(tmp_path: Path) -> None:
    (tmp_path / "corpus_description.json").write_text('{"modules": ["main.o"]}')
    corpus = Corpus.open(tmp_path)
    assert (corpus.names, corpus.has_thinlto) == (("main.o",), False)
    assert corpus["main.o"].thinlto_index_path is None


def test_a_missing_file_names_its_module(tmp_path: Path) -> None:
    corpus = Corpus.open(upstream_corpus(tmp_path))
    (tmp_path / "main.o.cmd").unlink()
    with pytest.raises(CorpusError, match=r"^main.o: cannot read main.o.cmd: No such file or directory$"):
        corpus["main.o"].command()


def test_removing_a_module_leaves_no_empty_folder(tmp_path: Path) -> None:
    corpus = upstream_corpus(tmp_path)
    remove_module_files(corpus, "lib/f.o")
    assert sorted(path.name for path in corpus.iterdir()) == [
        "corpus_description.json",
        "main.o.bc",
        "main.o.cmd",
    ]


def test_a_manifest_may_be_named_instead_of_its_folder(tmp_path: Path) -> None:
    upstream_corpus(tmp_path)
    (tmp_path / "corpus_description.train.json").write_text('{"has_thinlto": false, "modules": ["lib/f.o"]}')
    side = Corpus.open(tmp_path / "corpus_description.train.json")
    assert (side.path, side.names) == (tmp_path, ("lib/f.o",))
    assert side["lib/f.o"].bitcode() == b"BC\xc0\xdelib/f.o"
    assert Corpus.open(str(tmp_path / "corpus_description.json")).names == Corpus.open(tmp_path).names
    with pytest.raises(CorpusError) as caught:
        Corpus.open(tmp_path / "corpus_description.test.json")
    assert str(caught.value) == f"{tmp_path}: not a corpus: it has no corpus_description.test.json"


@pytest.mark.parametrize("name", ["other.json", "corpus_description.json.bak", "corpus_description.txt"])
def test_another_file_is_no_manifest(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"has_thinlto": false, "modules": []}')
    with pytest.raises(CorpusError, match=rf"/{name}: a file; expected the folder of a corpus$"):
        Corpus.open(tmp_path / name)


def test_a_folder_may_have_a_manifests_name(tmp_path: Path) -> None:
    (tmp_path / "corpus_description.x.json").mkdir()
    corpus = Corpus.open(upstream_corpus(tmp_path / "corpus_description.x.json"))
    assert corpus.path == tmp_path / "corpus_description.x.json"
    assert len(corpus) == 2
