"""A corpus is checked: whatever is wrong with it is found, named, and counted; what is right passes."""

from __future__ import annotations

import json
import os
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mlgo_corpus import VerifyReport, extract_corpus, pack_corpus, verify_corpus
from mlgo_corpus.cli.main import app
from mlgo_corpus.corpus.folder import Module, write_manifest
from mlgo_corpus.corpus.verify import Check, VerifyReason, check_module, check_options, status_of
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.formats.commands.replay import refused_options
from tests.conftest import Llvm, run_checked, unpack

pytestmark = pytest.mark.whole

MODULES = 34


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    unpack("lua-clang19", folder)
    extract_corpus([folder / "lua"], folder / "corpus", jobs=1)
    return folder / "corpus"


@pytest.fixture
def corpus(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "corpus"))


def rows_of(corpus: Path, output: Path, **options: object) -> dict[str, dict[str, object]]:
    verify_corpus(corpus, output=output, jobs=1, force=True, **options)  # type: ignore[arg-type]
    rows = pq.read_table(output).to_pylist()
    assert len({row["module"] for row in rows}) == len(rows)
    return {row["module"]: row for row in rows}


def only_problem(report: VerifyReport) -> tuple[str, str, str]:
    assert report.failed + report.warnings == 1, report.problems
    return report.problems[0]


def test_a_good_corpus_passes(corpus: Path, tmp_path: Path) -> None:
    report = verify_corpus(corpus, jobs=2)
    assert (report.modules, report.failed, report.warnings, report.exit_code) == (MODULES, 0, 0, 0)
    assert report.counts == {"ok": MODULES}
    assert report.producers == {"LLVM19.1.7": MODULES}
    assert report.readable_by == 19
    assert report.bitcode_bytes == sum(path.stat().st_size for path in corpus.rglob("*.bc"))
    assert report.cmd_bytes == sum(path.stat().st_size for path in corpus.rglob("*.cmd"))
    assert report.has_table
    rows = rows_of(corpus, tmp_path / "rows.parquet")
    assert rows["lvm.o"] == {
        "module": "lvm.o",
        "status": "ok",
        "reason": "ok",
        "detail": "",
        "producer": "LLVM19.1.7",
        "readable_by": 19,
        "bitcode_bytes": (corpus / "lvm.o.bc").stat().st_size,
        "cmd_bytes": (corpus / "lvm.o.cmd").stat().st_size,
    }
    metadata = json.loads(pq.read_schema(tmp_path / "rows.parquet").metadata[b"mlgo_corpus"])
    assert (metadata["tool"], metadata["kind"], len(metadata["corpus_sha256"])) == ("mlgo-corpus", "verify", 64)


def test_a_corpus_without_a_table_passes(corpus: Path) -> None:
    (corpus / "modules.parquet").unlink()
    report = verify_corpus(corpus, jobs=1)
    assert (report.counts, report.has_table) == ({"ok": MODULES}, False)


def test_a_flipped_bit_anywhere_is_found(corpus: Path) -> None:
    path = corpus / "lzio.o.bc"
    data = path.read_bytes()
    for offset in range(0, len(data), 97):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        module, reason, detail = only_problem(verify_corpus(corpus, module_filter="lzio", jobs=1))
        assert (module, reason) == ("lzio.o", "wrong_hash"), (offset, detail)


def test_a_cut_at_every_byte_is_found_also_without_a_table(corpus: Path) -> None:
    """But for a cut between two blocks at the top level, which cannot be told without a table: llvm-bcanalyzer's."""
    whole = (corpus / "lzio.o.bc").read_bytes()
    unseen = 0
    for size in range(len(whole)):
        reason = _reason_of(corpus, whole[:size])
        if size < 4:
            assert reason is VerifyReason.NOT_BITCODE
        elif reason is VerifyReason.OK:
            unseen += 1
        else:
            assert reason in (VerifyReason.TRUNCATED, VerifyReason.MALFORMED)
    assert unseen <= 2  # without its symbol table, and without that and its strings
    assert _reason_of(corpus, whole) is VerifyReason.OK
    assert _reason_of(corpus, whole + whole) is VerifyReason.MALFORMED
    assert _reason_of(corpus, whole + b"\0\0\0\0") is VerifyReason.MALFORMED


def _reason_of(corpus: Path, data: bytes) -> VerifyReason:
    path = corpus / "lzio.o.bc"
    path.write_bytes(data)
    return VerifyReason(check_module(Check(Module(corpus, "lzio.o"), None, has_table=False)).reason)


def test_swapped_modules_are_found(corpus: Path) -> None:
    first, second, spare = corpus / "lapi.o.bc", corpus / "lgc.o.bc", corpus / "spare"
    first.rename(spare)
    second.rename(first)
    spare.rename(second)
    report = verify_corpus(corpus, jobs=1)
    assert {(module, reason) for module, reason, _ in report.problems} == {
        ("lapi.o", "wrong_size"),
        ("lgc.o", "wrong_size"),
    }


@pytest.mark.parametrize(
    ("name", "content", "reason", "said"),
    [
        ("lapi.o.bc", None, "missing_bitcode", r"cannot read lapi\.o\.bc: No such file"),
        ("lapi.o.cmd", None, "missing_command", r"cannot read lapi\.o\.cmd: No such file"),
        ("lapi.o.bc", b"", "wrong_size", r"expected \d+ bytes, found 0; expected bitcode, found 0 bytes"),
        ("lapi.o.bc", b"#include <a.h>\n", "wrong_size", "text that begins '#include"),
        ("lapi.o.cmd", b"", "wrong_size", "command: expected .* found 0; the command is empty"),
        ("lapi.o.cmd", b"-O2\0-cc1\0", "wrong_size", "expected -cc1 as the command's first word, found '-O2'"),
    ],
)
def test_damaged_files_are_named(corpus: Path, name: str, content: bytes | None, reason: str, said: str) -> None:
    if content is None:
        (corpus / name).unlink()
    else:
        (corpus / name).write_bytes(content)
    module, found, detail = only_problem(verify_corpus(corpus, jobs=1))
    assert (module, found) == ("lapi.o", reason)
    assert re.search(said, detail), detail


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "command_empty"),
        (b"\0\0", "command_empty"),
        (b"-O2\0", "command_not_cc1"),
        (b"-cc1\0-load\0evil.so\0", "refused_option"),
        (b"-cc1\0-O2", "ok"),
    ],
)
def test_commands_without_a_table_to_compare_with(corpus: Path, content: bytes, reason: str) -> None:
    (corpus / "modules.parquet").unlink()
    (corpus / "lapi.o.cmd").write_bytes(content)
    report = verify_corpus(corpus, jobs=1)
    assert report.counts.get(reason, 0) == (1 if reason != "ok" else MODULES)
    assert report.exit_code == (0 if reason in ("ok", "refused_option") else 1)


def test_what_is_no_file_is_not_waited_for(corpus: Path) -> None:
    (corpus / "lapi.o.bc").unlink()
    os.mkfifo(corpus / "lapi.o.bc")
    (corpus / "lgc.o.cmd").unlink()
    (corpus / "lgc.o.cmd").mkdir()
    report = verify_corpus(corpus, jobs=1)
    assert [(module, reason) for module, reason, _ in report.problems] == [
        ("lapi.o", "unreadable"),
        ("lgc.o", "unreadable"),
    ]


def test_names_that_leave_the_folder_and_names_twice(corpus: Path) -> None:
    names = json.loads((corpus / "corpus_description.json").read_text())["modules"]
    manifest = [*names, "../outside.o", "/etc/passwd", "", names[0]]
    write_manifest(corpus / "corpus_description.json", manifest, has_thinlto=False, override=None)
    (corpus.parent / "outside.o.bc").write_bytes(b"secret")
    report = verify_corpus(corpus, jobs=1)
    assert report.counts == {"ok": MODULES, "name_leaves_corpus": 3, "listed_twice": 1}
    assert report.exit_code == 1


def test_manifest_and_table_disagree(corpus: Path) -> None:
    names = json.loads((corpus / "corpus_description.json").read_text())["modules"]
    shutil.copy(corpus / "lapi.o.bc", corpus / "new.o.bc")
    shutil.copy(corpus / "lapi.o.cmd", corpus / "new.o.cmd")
    kept = [name for name in names if name != "lapi.o"]
    write_manifest(corpus / "corpus_description.json", [*kept, "new.o"], has_thinlto=False, override=None)
    report = verify_corpus(corpus, jobs=1)
    assert report.counts == {"ok": MODULES - 1, "not_in_table": 1, "not_in_manifest": 1, "unlisted_file": 1}
    assert [(module, reason) for module, reason, _ in report.problems] == [
        ("new.o", "not_in_table"),
        ("lapi.o", "not_in_manifest"),
        ("lapi.o.bc", "unlisted_file"),
    ]
    assert report.exit_code == 0


def test_the_order_of_the_manifest_is_free(corpus: Path) -> None:
    names = json.loads((corpus / "corpus_description.json").read_text())["modules"]
    write_manifest(corpus / "corpus_description.json", names[::-1], has_thinlto=False, override=None)
    assert verify_corpus(corpus, jobs=2).counts == {"ok": MODULES}


def test_manifests_of_a_split(corpus: Path) -> None:
    train, test = corpus / "corpus_description.train.json", corpus / "corpus_description.test.json"
    write_manifest(train, ["lapi.o", "moon.o"], has_thinlto=False, override=None)
    test.write_text("{")
    report = verify_corpus(corpus, jobs=1)
    assert [(module, reason) for module, reason, _ in report.problems] == [
        ("corpus_description.test.json", "damaged_manifest"),
        ("moon.o", "unknown_module"),
    ]
    write_manifest(train, ["lapi.o", "lgc.o"], has_thinlto=False, override=None)
    side = verify_corpus(train, jobs=1)  # one side is a corpus of its own: what is not in it is not its business
    assert (side.counts, side.has_table) == ({"ok": 2}, True)


def test_a_damaged_table_is_told_and_the_files_are_checked_without(corpus: Path) -> None:
    data = (corpus / "modules.parquet").read_bytes()
    (corpus / "modules.parquet").write_bytes(data[: len(data) // 2])
    report = verify_corpus(corpus, jobs=1)
    assert report.counts == {"ok": MODULES, "damaged_table": 1}
    assert report.exit_code == 1


def test_an_override_stands_for_all_commands(corpus: Path) -> None:
    names = json.loads((corpus / "corpus_description.json").read_text())["modules"]
    manifest = corpus / "corpus_description.json"
    (corpus / "modules.parquet").unlink()
    for path in corpus.glob("*.cmd"):
        path.unlink()
    write_manifest(manifest, names, has_thinlto=False, override=["-cc1", "-O2"])
    assert verify_corpus(corpus, jobs=1).counts == {"ok": MODULES}
    write_manifest(manifest, names, has_thinlto=False, override=["-cc1", "-fplugin=x.so"])
    assert only_problem(verify_corpus(corpus, jobs=1))[:2] == ("corpus_description.json", "refused_option")
    write_manifest(manifest, names, has_thinlto=False, override=["<UNSPECIFIED>"])
    assert only_problem(verify_corpus(corpus, jobs=1))[:2] == ("corpus_description.json", "no_command")


def test_thinlto_indexes(llvm: Llvm, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int g(int); int f(int x) { return g(x); }\n")
    (tmp_path / "b.c").write_text("int g(int x) { return x + 1; }\n")
    for name in ("a", "b"):
        run_checked(llvm.clang, "-O2", "-flto=thin", "-c", f"{name}.c", "-o", f"{name}.o", cwd=tmp_path)
    run_checked(
        llvm.ld_lld, "-shared", "--save-temps=import", "--thinlto-emit-index-files", "a.o", "b.o", "-o", "x.so",
        cwd=tmp_path,
    )  # fmt: skip
    corpus = tmp_path / "corpus"
    extract_corpus([tmp_path], corpus, thinlto="local", command_override=["-cc1", "-O2"], jobs=1)
    assert verify_corpus(corpus, jobs=1).counts == {"ok": 2}
    index = corpus / "a.o.thinlto.bc"
    data = index.read_bytes()
    for content, reason in (
        (None, "missing_thinlto_index"),
        (data[:-8], "bad_thinlto_index"),
        (b"x", "bad_thinlto_index"),
    ):
        index.unlink(missing_ok=True)
        if content is not None:
            index.write_bytes(content)
        assert only_problem(verify_corpus(corpus, jobs=1))[:2] == ("a.o", reason)
    index.write_bytes(b"")  # compile without importing
    assert verify_corpus(corpus, jobs=1).counts == {"ok": 2}


def test_bitcode_without_a_command_is_a_warning_where_the_build_had_none(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(int x) { return x; }\n")
    run_checked(llvm22.clang, "-O2", "-flto", "-c", "a.c", "-o", "a.o", cwd=tmp_path)
    extract_corpus([tmp_path / "a.o"], tmp_path / "corpus", jobs=1)
    (row,) = verify_corpus(tmp_path / "corpus", jobs=1).problems
    assert row[1] == "no_command"
    assert verify_corpus(tmp_path / "corpus", jobs=1).exit_code == 0


def test_a_choice_of_modules(corpus: Path, tmp_path: Path) -> None:
    (corpus / "lapi.o.bc").unlink()
    assert verify_corpus(corpus, module_filter="lgc", jobs=1).counts == {"ok": 1}
    assert verify_corpus(corpus, sample="5", jobs=1).modules == 5
    (tmp_path / "names").write_text("lapi.o\n")
    assert verify_corpus(corpus, modules_file=tmp_path / "names", jobs=1).counts == {"missing_bitcode": 1}


def test_bad_requests(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="not a corpus"):
        verify_corpus(tmp_path)
    with pytest.raises(UsageError, match="jobs 0: expected at least 1"):
        verify_corpus(corpus, jobs=0)
    output = tmp_path / "rows.parquet"
    verify_corpus(corpus, output=output, jobs=1)
    before = sha256(output.read_bytes()).hexdigest()
    with pytest.raises(UsageError, match=r"rows\.parquet: is there already; `force` replaces it"):
        verify_corpus(corpus, output=output, jobs=1)
    assert sha256(output.read_bytes()).hexdigest() == before
    with pytest.raises(UsageError, match="found a folder"):
        verify_corpus(corpus, output=tmp_path, force=True)
    with pytest.raises(UsageError, match="there is no folder"):
        verify_corpus(corpus, output=tmp_path / "no" / "rows.parquet")


@pytest.mark.parametrize("name", ["modules.parquet", "corpus_description.json"])
def test_no_part_of_the_corpus_is_written_over(corpus: Path, name: str) -> None:
    before = (corpus / name).read_bytes()
    with pytest.raises(UsageError, match=f"{name}: is an input, or a part of one"):
        verify_corpus(corpus, output=corpus / name, force=True)
    assert (corpus / name).read_bytes() == before


def test_a_fifo_is_not_replaced(corpus: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="is neither a file nor a folder"):
        verify_corpus(corpus, output=tmp_path / "fifo", force=True)
    assert (tmp_path / "fifo").is_fifo()


def test_each_reason_has_its_status() -> None:
    assert [reason for reason in VerifyReason if status_of(reason) == "warning"] == [
        VerifyReason.REFUSED_OPTION,
        VerifyReason.NO_COMMAND,
        VerifyReason.NOT_IN_TABLE,
        VerifyReason.NOT_IN_MANIFEST,
        VerifyReason.UNLISTED_FILE,
    ]
    assert status_of(VerifyReason.OK) == "ok"


@pytest.mark.usefixtures("plain_terminal")
def test_the_verb(corpus: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    good = runner.invoke(app, ["verify", str(corpus)])
    assert good.exit_code == 0
    assert "checked 34 modules" in good.stdout
    assert "bitcode of LLVM19.1.7 (34): LLVM 19 and newer read all of it" in good.stdout
    (corpus / "lapi.o.bc").unlink()
    bad = runner.invoke(app, ["verify", str(corpus), "--json"])
    assert bad.exit_code == 1
    found = json.loads(bad.stdout)
    assert (found["failed"], found["exit_code"], found["counts"]["missing_bitcode"]) == (1, 1, 1)
    shown = runner.invoke(app, ["verify", str(corpus)])
    assert "lapi.o: missing_bitcode: cannot read lapi.o.bc: No such file or directory\n" in shown.stderr
    none = runner.invoke(app, ["verify", str(tmp_path)])
    assert (none.exit_code, none.stdout) == (2, "")
    assert none.stderr.startswith("mlgo-corpus: error: ")


words = st.sampled_from(
    [
        "-MT",
        "-D",
        "-main-file-name",
        "-load",
        "a.so",
        "@f",
        "-mllvm",
        "-plugin",
        "x/y",
        "",
        "-dumpdir",
        "-emit-pch",
        "-o",
    ]
)


@given(st.lists(words, max_size=8))
def test_leaving_out_names_changes_no_verdict(command: list[str]) -> None:
    options = ("-cc1", *command)
    assert [reason for reason, _ in check_options(options)] == [
        VerifyReason.REFUSED_OPTION for _ in refused_options(options)[:1]
    ]


@pytest.mark.parametrize("name", ["modules.parquet", "corpus_description.json"])
def test_what_goes_along_with_a_packed_corpus_is_what_was_packed(corpus: Path, tmp_path: Path, name: str) -> None:
    """Its rows may all be right while a table or a manifest beside them has been changed."""
    packed = tmp_path / "packed"
    pack_corpus(corpus, packed, jobs=1)
    assert verify_corpus(packed, jobs=1).counts == {"ok": MODULES}
    if name == "modules.parquet":
        table = pq.read_table(packed / name)
        pq.write_table(table, packed / name, compression="none")
        reason = "damaged_table"
    else:
        (packed / name).write_bytes((packed / name).read_bytes() + b"\n")
        reason = "damaged_manifest"
    report = verify_corpus(packed, jobs=1)
    assert report.counts == {"ok": MODULES, reason: 1}
    assert report.exit_code == 1
    assert only_problem(report) == (name, reason, "is not what was packed: its SHA-256 is another")
