"""What is in a corpus, against plain Python counts of its rows."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus import corpus_stats, extract_corpus
from mlgo_corpus.corpus.groups import GROUPS, languages_of
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.stats import CorpusStats
from tests.cli.test_cli import mlgo
from tests.conftest import unpack
from tests.handmade import bitcode, corpus, row, rows, table

pytestmark = pytest.mark.whole

FIELD_OF = {"opt-level": "opt_level", "triple": "target_triple", "producer": "producer"}


def ok_rows(folder: Path) -> list[dict[str, Any]]:
    return [one for one in rows(folder) if one["status"] == "ok"]


def again(found: list[dict[str, Any]], *fields: str) -> list[bool]:
    """Tell of each row whether an earlier one has the same in these fields; what is not known equals nothing."""
    seen: set[tuple[Any, ...]] = set()
    told = []
    for one in found:
        key = tuple(one.get(field) for field in fields)
        told.append(key[0] is not None and key in seen)
        seen.add(key)
    return told


def label(one: dict[str, Any], by: str, depth: int = 1) -> str:
    if by == "folder":
        folders = one["module"].split("/")[:-1][:depth]
        return "/".join(folders) + "/" if folders else "./"
    if by == "language":
        words = {"c": "C", "cc": "C++", "cpp": "C++", "CPP": "C++", "C": "C++", "m": "Objective-C", "S": "assembly"}
        _, dot, suffix = (one.get("main_file_name") or "").rpartition(".")
        rust = "Rust" if "rust" in (one.get("producer") or "") else "unknown"
        return words.get(suffix, rust) if dot else rust
    return one.get(FIELD_OF[by]) or "unknown"


def check(folder: Path, depth: int = 1) -> CorpusStats:
    """Compare all that is said of a corpus that has a table with a plain count; give what was said."""
    found = ok_rows(folder)
    said = corpus_stats(folder)
    sizes = [one["bitcode_bytes"] or 0 for one in found]
    assert said.modules == len(found)
    assert said.bitcode_bytes == sum(sizes)
    assert said.cmd_bytes == sum(one.get("cmd_bytes") or 0 for one in found)
    functions = [one.get("functions") for one in found]
    known = [number for number in functions if number is not None]
    assert said.functions == (sum(known) if known else None)
    assert said.functions_unknown == functions.count(None)
    reasons = Counter((one["reason"], one["status"]) for one in rows(folder))
    assert sorted(said.reasons) == sorted((*key, count) for key, count in reasons.items())
    assert [count for *_, count in said.reasons] == sorted(reasons.values(), reverse=True)
    twice = again(found, "bitcode_sha256", "cmd_sha256")
    assert said.duplicates == sum(twice)
    assert said.duplicate_bytes == sum(size for size, copy in zip(sizes, twice, strict=True) if copy)
    assert said.same_bitcode == sum(again(found, "bitcode_sha256"))
    assert said.splits == Counter(one["split"] for one in found if one.get("split") is not None)
    assert sum(count for _, count in said.histogram) == len(found)
    for edge, count in said.histogram:
        assert count == sum(edge <= max(size, 1) < 2 * edge for size in sizes), edge
    if found:
        in_order = sorted(sizes)
        places = {"least": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "most": 1.0}
        ranks = {name: max(1, math.ceil(at * len(sizes) - 1e-9)) for name, at in places.items()}
        assert said.sizes == {name: in_order[rank - 1] for name, rank in ranks.items()}
        largest = sorted(((one["module"], size) for one, size in zip(found, sizes, strict=True)), key=lambda x: -x[1])
        assert list(said.largest) == largest[:5]
    else:
        assert (said.sizes, said.histogram, said.largest) == ({}, (), ())
    for by in GROUPS:
        groups = corpus_stats(folder, by=by, depth=depth).groups
        expected: dict[str, list[Any]] = {}
        for one, size, copy in zip(found, sizes, twice, strict=True):
            sums = expected.setdefault(label(one, by, depth), [0, 0, None, 0])
            sums[0] += 1
            sums[1] += size
            if one.get("functions") is not None:
                sums[2] = (sums[2] or 0) + one["functions"]
            sums[3] += copy
        assert {
            group.label: [group.modules, group.bitcode_bytes, group.functions, group.duplicates] for group in groups
        } == expected, by
        assert [group.bitcode_bytes for group in groups] == sorted(
            (sums[1] for sums in expected.values()), reverse=True
        )
    return said


def handmade(folder: Path, given_rows: list[dict[str, Any]]) -> Path:
    """Write a corpus of rows; there are no files, because none is read."""
    modules = [one["module"] for one in given_rows if one["status"] == "ok"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": modules}))
    table(folder, given_rows)
    return folder


def test_a_real_corpus(tmp_path: Path) -> None:
    for name in ("lua-clang19", "lua-clang22", "zlib-clang19"):
        unpack(name, tmp_path / "build" / name)
    (tmp_path / "build/broken.o").write_bytes(b"\x7fELF")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus")
    for depth in (1, 2, 3):
        said = check(tmp_path / "corpus", depth)
    assert said.from_table
    assert ("truncated", "failed", 1) in said.reasons
    assert [group.label for group in corpus_stats(tmp_path / "corpus", by="language").groups] == ["C"]
    producers = corpus_stats(tmp_path / "corpus", by="producer").groups
    assert {group.label for group in producers} == {"LLVM19.1.7", "LLVM22.1.8"}


def test_without_a_table_every_module_is_read(tmp_path: Path) -> None:
    unpack("zlib-clang19", tmp_path / "build")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus")
    (tmp_path / "corpus/gone").mkdir()
    with_table = {by: corpus_stats(tmp_path / "corpus", by=by).groups for by in GROUPS}
    (tmp_path / "corpus/modules.parquet").unlink()
    said = corpus_stats(tmp_path / "corpus")
    assert not said.from_table
    assert {by: corpus_stats(tmp_path / "corpus", by=by).groups for by in GROUPS} == with_table
    victim = next(iter(sorted((tmp_path / "corpus").rglob("*.bc"))))
    victim.unlink()
    less = corpus_stats(tmp_path / "corpus")
    assert less.modules == said.modules - 1
    assert ("missing", "failed", 1) in less.reasons


TEXT = st.one_of(st.none(), st.sampled_from(["", "x", "y", "rustc LLVM", "LLVM19.1.7", "[bold]", "a\nb"]))
MODULE = st.lists(st.sampled_from(["a", "b", "c.d", "e\nf", "größe"]), min_size=1, max_size=5).map("/".join)
MAIN = st.one_of(st.none(), st.sampled_from(["", "a.c", "b.cc", "x.CPP", "c", "y.C", "a.b.m", "z.S", "l\n.c", "v.xyz"]))
SHA = st.one_of(st.none(), st.sampled_from(["1", "2", "3"]))
SIZE = st.one_of(st.none(), st.integers(0, 40), st.integers(0, 1 << 40), st.sampled_from([1 << 20, (1 << 20) - 1]))
ROW = st.fixed_dictionaries(
    {
        "module": MODULE,
        "status": st.sampled_from(["ok", "ok", "ok", "skipped", "failed"]),
        "reason": st.sampled_from(["ok", "no_command", "missing", "[/bold]"]),
        "bitcode_bytes": SIZE,
        "cmd_bytes": SIZE,
        "bitcode_sha256": SHA,
        "cmd_sha256": SHA,
        "functions": st.one_of(st.none(), st.integers(0, 1000)),
        "split": st.sampled_from([None, "train", "test"]),
        "opt_level": st.sampled_from([None, "2", "z"]),
        "target_triple": st.sampled_from([None, "x86_64", "aarch64"]),
        "producer": st.sampled_from([None, "LLVM19.1.7", "LLVM20.1.1-rust-1.88.0-stable"]),
        "main_file_name": MAIN,
    }
)


@settings(deadline=None, max_examples=120)
@given(st.lists(ROW, max_size=30), st.integers(1, 4))
def test_any_rows(tmp_path_factory: pytest.TempPathFactory, given_rows: list[dict[str, Any]], depth: int) -> None:
    seen: set[str] = set()
    unique = [one for one in given_rows if one["module"] not in seen and not seen.add(one["module"])]  # type: ignore[func-returns-value]
    check(handmade(tmp_path_factory.mktemp("corpus"), unique), depth)


def test_an_old_table_without_some_columns(tmp_path: Path) -> None:
    """What no row tells is unknown, and modules that nothing is known of are not the same."""
    handmade(tmp_path, [{"module": name, "status": "ok"} for name in ("a/x", "b", "a/y")])
    said = corpus_stats(tmp_path, by="triple")
    assert (said.modules, said.bitcode_bytes, said.functions, said.functions_unknown) == (3, 0, None, 3)
    assert (said.duplicates, said.same_bitcode, said.splits) == (0, 0, {})
    assert said.reasons == (("unknown", "ok", 3),)
    assert [(group.label, group.modules, group.functions) for group in said.groups] == [("unknown", 3, None)]


def test_rows_without_a_status_or_reason(tmp_path: Path) -> None:
    handmade(tmp_path, [row("a", b"1"), row("b", status="failed", reason=None), row("c", status="failed", reason=None)])
    table(tmp_path, [row("a", b"1"), row("b", status=None, reason=None), row(None, status="failed", reason=None)])
    assert corpus_stats(tmp_path).reasons == (
        ("ok", "ok", 1), ("unknown", "failed", 1), ("unknown", "unknown", 1),
    )  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2, 999, 1001, 1 << 70])
def test_folders_as_deep_as_can_be(tmp_path: Path, depth: int) -> None:
    deep = "/".join("d" * 1500) + "/f.o"
    handmade(tmp_path, [row(deep, b"12"), row("f.o", b"1")])
    first, second = corpus_stats(tmp_path, by="folder", depth=depth).groups
    assert (first.label, second.label) == ("d/" * min(depth, 1500), "./")


def test_an_empty_corpus(tmp_path: Path) -> None:
    handmade(tmp_path / "table", [])
    corpus(tmp_path / "bare", [])
    for name in ("table", "bare"):
        for by in (None, *GROUPS):
            said = corpus_stats(tmp_path / name, by=by)
            assert (said.modules, said.bitcode_bytes, said.functions, said.groups) == (0, 0, None, ())
    done = mlgo("stats", "bare", "--by", "folder", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("bare: 0 modules\n0 B of bitcode, 0 B of commands\n")


def test_one_side_of_a_split(tmp_path: Path) -> None:
    handmade(tmp_path, [row("a", b"1", split="train"), row("b", b"22", split="test"), row("c", status="failed")])
    path = tmp_path / "corpus_description.test.json"
    path.write_text('{"has_thinlto": false, "modules": ["b"]}')
    said = corpus_stats(path)
    assert (said.modules, said.bitcode_bytes, said.splits) == (1, 2, {"test": 1})
    assert said.corpus == tmp_path


def test_a_source_whose_name_has_no_ending_tells_no_language(tmp_path: Path) -> None:
    handmade(tmp_path, [row("a", b"1", main_file_name="c"), row("b", b"22", main_file_name="b.c.cc")])
    assert [group.label for group in corpus_stats(tmp_path, by="language").groups] == ["C++", "unknown"]
    assert languages_of(open_corpus(tmp_path), ["a", "b"]) == ("C++", "unknown")


def test_what_may_not_be_asked(tmp_path: Path) -> None:
    handmade(tmp_path, [row("a", b"1")])
    with pytest.raises(UsageError, match=r"^by colour: expected one of folder, opt-level, triple, producer, language$"):
        corpus_stats(tmp_path, by="colour")
    with pytest.raises(UsageError, match=r"^depth 0: expected at least 1$"):
        corpus_stats(tmp_path, by="folder", depth=0)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "not a corpus: it has no corpus_description.json"),
        ("{", "corpus_description.json: not JSON: "),
        ("[]", "expected a JSON object, found list"),
        ('{"has_thinlto": 0, "modules": []}', "expected true or false under 'has_thinlto'"),
        ('{"has_thinlto": false, "modules": [1]}', "expected a list of strings under 'modules'"),
    ],
)
def test_what_is_no_corpus(tmp_path: Path, manifest: str | None, message: str) -> None:
    if manifest is not None:
        (tmp_path / "corpus_description.json").write_text(manifest)
    with pytest.raises(CorpusError) as caught:
        corpus_stats(tmp_path)
    assert message in str(caught.value)
    done = mlgo("stats", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"mlgo-corpus: error: {caught.value}\n"


def test_a_damaged_table_is_one_line(tmp_path: Path) -> None:
    handmade(tmp_path, [row("a", b"1")])
    data = (tmp_path / "modules.parquet").read_bytes()
    for damaged in (b"", data[:-9], data[:40] + b"\xff" * 40 + data[80:], b"PAR1"):
        (tmp_path / "modules.parquet").write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"modules\.parquet: cannot be read: [^\n]*$"):
            corpus_stats(tmp_path)


def test_the_json_is_what_was_found(tmp_path: Path) -> None:
    handmade(
        tmp_path,
        [row("a/x", b"12", functions=3, split="train"), row("b", b"12"), row("c", status="failed", reason="r")],
    )
    done = mlgo("stats", tmp_path, "--by", "folder", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told.pop("seconds") > 0
    assert told == {
        "corpus": str(tmp_path),
        "modules": 2,
        "bitcode_bytes": 4,
        "cmd_bytes": 2 * row("a")["cmd_bytes"],
        "functions": 3,
        "functions_unknown": 1,
        "reasons": [["ok", "ok", 2], ["r", "failed", 1]],
        "sizes": {"least": 2, "p25": 2, "median": 2, "p75": 2, "p95": 2, "most": 2},
        "histogram": [[2, 2]],
        "largest": [["a/x", 2], ["b", 2]],
        "duplicates": 1,
        "duplicate_bytes": 2,
        "same_bitcode": 1,
        "unoptimised": 0,
        "splits": {"train": 1},
        "has_thinlto": False,
        "override": None,
        "by": "folder",
        "groups": [
            {"label": "./", "modules": 1, "bitcode_bytes": 2, "functions": None, "duplicates": 1},
            {"label": "a/", "modules": 1, "bitcode_bytes": 2, "functions": 3, "duplicates": 0},
        ],
        "from_table": True,
        "hints": [],
    }


def test_modules_at_level_0_are_hinted_at(tmp_path: Path) -> None:
    levels = {"a": "0", "b": "0", "c": "z", "d": None}
    left_out = row("e", status="skipped", reason="duplicate", opt_level="0")
    handmade(tmp_path, [*(row(name, b"1", opt_level=level) for name, level in levels.items()), left_out])
    done = mlgo("stats", tmp_path)
    hint = (
        "2 of 4 modules are compiled at -O0 (optnone): nothing to decide; build with -DCMAKE_BUILD_TYPE=MinSizeRel "
        "(CMake), -Dbuildtype=minsize (Meson), or CFLAGS=-Oz CXXFLAGS=-Oz (make, configure)"
    )
    assert (done.returncode, done.stderr) == (0, f"hint: {hint}\n")
    told = json.loads(mlgo("stats", tmp_path, "--json").stdout)
    assert (told["unoptimised"], told["hints"]) == (2, [hint])


def test_a_quantile_is_the_size_of_a_module(tmp_path: Path) -> None:
    handmade(tmp_path, [row(str(size), b"x" * size) for size in range(1, 5)])
    assert list(corpus_stats(tmp_path).sizes.values()) == [1, 1, 2, 3, 4, 4]


def test_what_a_person_sees(tmp_path: Path) -> None:
    data = bitcode(b"x" * 1000)
    handmade(
        tmp_path / "corpus",
        [
            row("lib/a.o", data, functions=3, split="train"),
            row("lib/b.o", data, split="test"),
            row("c.o", bitcode(), functions=1, split="train"),
            row("gone.o", status="skipped", reason="no_bitcode"),
        ],
    )
    done = mlgo("stats", "corpus", "--by", "folder", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [" ".join(line.split()) for line in done.stdout.splitlines() if "──" not in line] == [
        "corpus: 3 modules, 4 functions (not known of 1 module)",
        "2.0 kB of bitcode, 171 B of commands",
        "1 module the same as an earlier one (1.0 kB)",
        "split: train 2, test 1",
        "reason rows status",
        "ok 3 ok",
        "no_bitcode 1 skipped",
        "a module's bitcode: least 16 B, p25 16 B, median 1.0 kB, p75 1.0 kB, p95 1.0 kB, most 1.0 kB",
        "from modules",
        f"16 B 1 {'█' * 16}",
        "32 B 0",
        "64 B 0",
        "128 B 0",
        "256 B 0",
        f"512 B 2 {'█' * 32}",
        "largest: lib/a.o 1.0 kB, lib/b.o 1.0 kB, c.o 16 B",
        "folder modules bitcode functions duplicates",
        "lib/ 2 2.0 kB 3 1",
        "./ 1 16 B 1 0",
    ]


def test_what_others_wrote_is_shown_as_it_is(tmp_path: Path) -> None:
    """Markup, control characters and bytes that are no UTF-8, wherever a corpus may have them."""
    folder = handmade(
        tmp_path / os.fsdecode(b"[/bold]\xff"),
        [
            row("[red]a[/red]/\x1b[2J.o", b"1", split="[x]"),
            row("b", status="[/]", reason="[/nothing]", detail="[/]"),
        ],
    )
    path = folder / "corpus_description.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "has_thinlto": True, "global_command_override": ["[/y]", "\n"]})
    )
    done = mlgo("stats", folder, "--by", "folder")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].endswith("/[/bold]\\udcff: 1 module")
    assert lines[2] == "with ThinLTO indexes, one command for all: '[/y]' '\\n'"
    assert "split: [x] 1" in lines
    assert "[/nothing] 1 [/]" in lines
    assert "largest: [red]a[/red]/\\x1b[2J.o 1 B" in lines
    assert "[red]a[/ 1 1 B 0" in lines


def test_options_that_typer_refuses() -> None:
    assert mlgo("stats").returncode == 2
    assert mlgo("stats", "x", "--by", "colour").returncode == 2
    assert mlgo("stats", "x", "--depth", "0").returncode == 2
