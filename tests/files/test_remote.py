"""Packed corpora and datasets behind ``s3://``: a real server of that protocol, on this machine."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import (
    Corpus,
    combine_corpora,
    convert_logs,
    corpus_stats,
    dedup_corpus,
    export_tfrecord,
    ir2native_table,
    pack_corpus,
    report_page,
    restore_logs,
    split_corpus,
    trace_corpus,
    unpack_corpus,
    verify_corpus,
)
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files import remote
from mlgo_corpus.files.remote import RemotePath, parse_place
from mlgo_corpus.runs.datasets import publish as publishing
from tests.cli.test_cli import mlgo
from tests.conftest import PACKAGE_ROOT, Llvm
from tests.corpus.packed.test_pack import files, make
from tests.runs.datasets.test_logs import LOGS, tree
from tests.runs.trace.test_trace import lua_corpus
from tests.view.reportinputs import function_columns, plain_trace, sizes

pytestmark = pytest.mark.whole

FEW = r"/(lctype|linit|lzio)\.o$"
LOG = LOGS / "regalloc-priority.ltable.log"
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server in a process of its own, so that its threads are not ours."""
    pytest.importorskip("moto")
    process = subprocess.Popen(
        (sys.executable, "-c", SERVER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, b"")
    port = next(line for line in lines if line.strip().isdigit()).decode().strip()
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.communicate()


@pytest.fixture
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: Path) -> Iterator[str]:
    """An empty bucket: give the query of URLs for it; it is called ``bucket``."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    shutil.copytree(probed, tmp_path / "cache")
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLGO_CORPUS_COMPILER", raising=False)
    urllib.request.urlopen(urllib.request.Request(f"{server}/moto-api/reset", method="POST"))  # noqa: S310
    urllib.request.urlopen(urllib.request.Request(f"{server}/bucket", method="PUT"))  # noqa: S310
    yield f"?endpoint_override={server}&region=us-east-1"
    remote._filesystem.cache_clear()


def there(query: str, path: str = "") -> dict[str, int]:
    """All objects below a path of the bucket, with their sizes."""
    return RemotePath("s3", f"bucket{path}", query.removeprefix("?")).files()


def put(query: str, path: str, data: bytes, folder: Path) -> None:
    (folder / "put").write_bytes(data)
    parse_place(f"s3://bucket/{path}{query}").upload(folder / "put")  # type: ignore[union-attr]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    content = {}
    for number in range(5):
        content[f"d{number % 2}/m{number}.o.bc"] = b"BC\xc0\xde" + bytes([number]) * 400
        content[f"d{number % 2}/m{number}.o.cmd"] = b"-cc1\0-DN=%d\0" % number
    return make(tmp_path / "corpus", content)


# --- URLs


def test_what_is_a_place(tmp_path: Path) -> None:
    assert parse_place("a/b") == Path("a/b")
    assert parse_place(Path("s3:/a")) == Path("s3:/a")
    assert parse_place("file:///a/b%20c") == Path("/a/b c")
    assert parse_place("file://localhost/a") == Path("/a")
    assert parse_place("file:///a%23b%3Fc") == Path("/a#b?c")
    place = parse_place("s3://bucket//x/y/?region=eu-west-1")
    assert place == RemotePath("s3", "bucket/x/y", "region=eu-west-1")
    assert (str(place), place.name, str(place.parent), str(place / "z")) == (
        "s3://bucket/x/y", "y", "s3://bucket/x", "s3://bucket/x/y/z",
    )  # fmt: skip
    assert pickle.loads(pickle.dumps(place)) == place


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/x", "ftp://host/x: expected a path, or a URL of s3://, gs://, file://"),
        ("s3:///x", "s3:///x: expected s3://BUCKET/PATH"),
        ("s3://key@bucket/x", "s3://key@bucket/x: expected s3://BUCKET/PATH"),
        ("s3://bucket/../x", "s3://bucket/../x: expected s3://BUCKET/PATH"),
        ("s3://b/x?pass=1", "s3://b/x: pass is unknown; expected ?anonymous, ?endpoint_override, ?region, ?scheme"),
        ("file://host/x", "file://host/x: expected file:///PATH, a path on this machine"),
        ("s3://[/x", "s3://[/x: not a URL: Invalid IPv6 URL"),
        ("s3://bucket/run#2/ds", "s3://bucket/run#2/ds: a URL has %23 for #"),
        ("file:///tmp/what?/x", "file:///tmp/what?/x: a file's URL has %3F for ?"),
        ("file:///tmp/a%00b", "'file:///tmp/a%00b': a URL cannot have control characters"),
        ("s3://bucket/a\tb", "'s3://bucket/a\\tb': a URL cannot have control characters"),
    ],
)  # fmt: skip
def test_urls_that_are_none(url: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_place(url)
    assert str(caught.value) == message
    done = mlgo("pack", url, "--output", "x")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"mlgo-corpus: error: {message}\n")


def test_file_urls_are_paths(small: Path, tmp_path: Path) -> None:
    pack_corpus(f"file://{small}", f"file://{tmp_path}/packed")
    unpack_corpus(f"file://{tmp_path}/packed", f"file://{tmp_path}/again")
    assert files(tmp_path / "again") == files(small)
    assert len(Corpus.open(f"file://{tmp_path}/packed")) == 5


# --- packed corpora


def test_there_and_back(bucket: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.pack.PART_BYTES", 500)
    url = f"s3://bucket/some/corpus{bucket}"
    first = pack_corpus(small, url, jobs=2)
    assert (str(first.output), first.modules, first.files, first.unchanged) == ("s3://bucket/some/corpus", 5, 3, False)
    pack_corpus(small, tmp_path / "packed", jobs=1)
    assert there(bucket, "/some/corpus") == {name: len(data) for name, data in files(tmp_path / "packed").items()}
    assert pack_corpus(small, url).unchanged
    unpack_corpus(url, tmp_path / "again", jobs=2)
    assert files(tmp_path / "again") == files(small)
    opened = Corpus.open(url)
    assert (opened.location, opened.path.name) == ("s3://bucket/some/corpus", "corpus")
    assert [module.bitcode() for module in opened] == [module.bitcode() for module in Corpus.open(small)]
    assert next(iter(opened)).location == "s3://bucket/some/corpus"
    assert "endpoint" not in repr(opened)
    assert not list((tmp_path / "cache/uploads").glob("*/*"))


def test_another_one_is_replaced_only_by_force(
    bucket: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make(tmp_path / "other", {"x.bc": b"BC"})
    url = f"s3://bucket/corpus{bucket}"
    with monkeypatch.context() as patch:
        patch.setattr("mlgo_corpus.pack.PART_BYTES", 500)
        pack_corpus(small, url)
    before = there(bucket)
    with pytest.raises(UsageError, match=r"^s3://bucket/corpus: holds another packed corpus, or an incomplete one"):
        pack_corpus(other, url)
    assert there(bucket) == before
    pack_corpus(other, url, force=True)
    assert Corpus.open(url).names == ("x",)
    assert sum(name.startswith("corpus/data/") for name in there(bucket)) == 1
    put(bucket, "corpus/thesis.tex", b"mine", tmp_path)
    with pytest.raises(UsageError, match=r"holds thesis\.tex, which is not of the packed corpus; name another folder$"):
        pack_corpus(small, url, force=True)
    put(bucket, "mine/thesis.tex", b"mine", tmp_path)
    with pytest.raises(UsageError, match=r"mine: is not empty, and not a packed corpus: it holds thesis\.tex; name"):
        pack_corpus(small, f"s3://bucket/mine{bucket}", force=True)
    assert set(there(bucket, "/mine")) == {"thesis.tex"}


@pytest.mark.parametrize("call", [1, 2, 4, 5])
def test_killed_while_it_uploads(bucket: str, small: Path, tmp_path: Path, call: int) -> None:
    url = f"s3://bucket/corpus{bucket}"

    def work() -> None:
        pack_corpus(small, url, jobs=1)

    script = tmp_path / "work.py"  # in a process of its own: a fork of one that has connected cannot
    script.write_text(KILLED.format(call=call, corpus=str(small), url=url))
    env = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    assert subprocess.run((sys.executable, str(script)), env=env, check=False).returncode == -signal.SIGKILL
    with pytest.raises(CorpusError, match=r"^s3://bucket/corpus: not a packed corpus"):
        Corpus.open(url)
    work()
    pack_corpus(small, tmp_path / "packed", jobs=1)
    assert there(bucket, "/corpus") == {name: len(data) for name, data in files(tmp_path / "packed").items()}


KILLED = """
import itertools, os, signal
from mlgo_corpus import pack_corpus
from mlgo_corpus.engine import pool as engine
from mlgo_corpus.corpus.packed.convert import write_part
from mlgo_corpus.files.remote import RemotePath
import mlgo_corpus.pack
calls = itertools.count(1)
real = RemotePath.upload
def upload(self, path):
    if next(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    real(self, path)
RemotePath.upload = upload
mlgo_corpus.pack.parallel_map = lambda function, items, **_: map(function, items)  # all of it in this process
pack_corpus({corpus!r}, {url!r}, jobs=1)
"""


def test_what_a_user_is_told(bucket: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for work in (
        lambda: pack_corpus(small, f"s3://nobucket/corpus{bucket}"),
        lambda: Corpus.open(f"s3://nobucket/corpus{bucket}"),
        lambda: unpack_corpus(f"s3://nobucket/corpus{bucket}", tmp_path / "again"),
    ):
        with pytest.raises(
            MlgoCorpusError, match=r"^s3://nobucket/corpus.*: there is no bucket nobucket; create it, or name another$"
        ):
            work()
    with pytest.raises(CorpusError, match=r"^s3://bucket/nothing: not a packed corpus; mlgo-corpus pack makes one$"):
        Corpus.open(f"s3://bucket/nothing{bucket}")
    with pytest.raises(UsageError, match=r"^s3://bucket/nothing: not a packed corpus: it has no corpus\.json of one$"):
        unpack_corpus(f"s3://bucket/nothing{bucket}", tmp_path / "again")
    with pytest.raises(UsageError, match=r"^s3://bucket/x: a corpus cannot be unpacked to a URL"):
        unpack_corpus(small, f"s3://bucket/x{bucket}")
    with pytest.raises(CorpusError, match=r"^s3://bucket/x/corpus\.json: no connection; is the network up"):
        Corpus.open("s3://bucket/x?endpoint_override=http://127.0.0.1:1&region=us-east-1")
    for argv in (
        ("pack", str(small), "--output", f"s3://nobucket/corpus{bucket}"),
        ("unpack", f"s3://nobucket/corpus{bucket}", "--output", str(tmp_path / "again")),
        ("trace", f"s3://nobucket/corpus{bucket}", "--output", str(tmp_path / "again")),
    ):
        done = mlgo(*argv)
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "there is no bucket nobucket; create it, or name another" in done.stderr
        assert done.returncode in (1, 2)


def requires_keys(server: str, *, after: int) -> None:
    """Let the server look at keys after so many more requests."""
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(f"{server}/moto-api/reset-auth", str(after).encode(), headers)  # noqa: S310
    urllib.request.urlopen(request)  # noqa: S310


def test_without_credentials(server: str, bucket: str, small: Path) -> None:
    url = f"s3://bucket/corpus{bucket}"
    pack_corpus(small, url)
    remote._filesystem.cache_clear()
    requires_keys(server, after=0)
    try:
        with pytest.raises(CorpusError, match="access is refused: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
            Corpus.open(url)
    finally:
        requires_keys(server, after=1_000_000)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], str]]:
    """A server that gives every request the same answer, perhaps none: give the query of URLs for it."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        kept: list[socket.socket] = []

        def answer(data: bytes) -> None:
            while True:
                connection, _ = listener.accept()
                kept.append(connection)
                if data:
                    connection.recv(1 << 16)
                    connection.sendall(data)

        def start(data: bytes) -> str:
            pool.submit(answer, data)
            port = listener.getsockname()[1]
            return f"?endpoint_override=http://127.0.0.1:{port}&region=us-east-1&anonymous=true"

        yield start
        listener.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()
    remote._filesystem.cache_clear()


def test_an_endpoint_that_never_answers_is_left(
    endpoint: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote._REQUEST_S <= 20
    monkeypatch.setattr(remote, "_REQUEST_S", 0.3)
    with pytest.raises(CorpusError, match=r"^s3://bucket/c/corpus\.json: no connection; is the network up, and is "):
        Corpus.open(f"s3://bucket/c{endpoint(b'')}")


def test_a_small_file_of_6_gb_is_not_believed(endpoint: Callable[[bytes], str]) -> None:
    head = (
        b'HTTP/1.1 200 OK\r\nContent-Length: 6442450944\r\nETag: "a"\r\n'
        b"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n"
    )
    expected = r"^s3://bucket/c/corpus\.json: expected at most 268435456 bytes, found 6442450944; is it the "
    with pytest.raises(CorpusError, match=expected):
        Corpus.open(f"s3://bucket/c{endpoint(head)}")


def test_an_object_that_is_gone_or_cut(bucket: str, small: Path, tmp_path: Path) -> None:
    url = f"s3://bucket/corpus{bucket}"
    pack_corpus(small, url)
    place = parse_place(url)
    data = (place / "data/part-00000.parquet").read_bytes()
    put(bucket, "corpus/data/part-00000.parquet", data[:-100], tmp_path)
    module = next(iter(Corpus.open(url)))
    with pytest.raises(CorpusError, match=r"s3://bucket/corpus/data/part-00000\.parquet: cannot be read: "):
        module.bitcode()
    (place / "data/part-00000.parquet").unlink()  # type: ignore[union-attr]
    with pytest.raises(CorpusError, match=r"part-00000\.parquet: is missing; the packed corpus is not whole$"):
        module.bitcode()
    with pytest.raises(CorpusError, match="is missing"):
        unpack_corpus(url, tmp_path / "again")
    assert not (tmp_path / "again").exists()


# --- stages


@pytest.fixture(scope="module")
def lua22(llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lua_corpus(22, tmp_path_factory.mktemp("lua22"))


def untimed(path: Any) -> list[dict[str, Any]]:
    table = pq.read_table(path)
    rows = table.drop_columns([name for name in table.column_names if name.endswith(("_s", "rss_bytes"))]).to_pylist()
    for row in rows:
        row.pop("argv", None)
    return rows


def test_a_trace_from_a_url_to_a_url(bucket: str, llvm22: Llvm, lua22: Path, tmp_path: Path) -> None:
    corpus, dataset = f"s3://bucket/lua{bucket}", f"s3://bucket/traces/lua{bucket}"
    pack_corpus(lua22, corpus)
    options: dict[str, Any] = {"compiler": llvm22.clang, "via": "interactive", "module_filter": FEW, "jobs": 2}
    report = trace_corpus(corpus, dataset, **options, cache=tmp_path / "cache")
    assert (report.output, report.traced, report.unchanged) == ("s3://bucket/traces/lua", 3, False)
    trace_corpus(lua22, tmp_path / "here", **options, cache=tmp_path / "cache")
    names = {str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*") if path.is_file()}
    assert set(there(bucket, "/traces/lua")) == names
    place = parse_place(dataset)
    with (place / "modules.parquet").open() as file:  # type: ignore[union-attr]
        assert untimed(file) == untimed(tmp_path / "here/modules.parquet")
        file.seek(0)
        argv = pq.read_table(file)["argv"][0].as_py()
    assert f"s3://bucket/lua/{Corpus.open(corpus).names[0].rpartition('/')[0]}/lctype.o.bc" in argv
    part = "observations/part-00000.parquet"
    assert (place / part).read_bytes() == (tmp_path / "here" / part).read_bytes()
    again = trace_corpus(corpus, dataset, **options, cache=tmp_path / "cache")
    assert (again.unchanged, again.traced, again.output) == (True, 3, "s3://bucket/traces/lua")
    with pytest.raises(
        UsageError, match=r"^s3://bucket/traces/lua: made in another way: .* was False, is True; `force`"
    ):
        trace_corpus(corpus, dataset, **{**options, "trust_corpus": True}, cache=tmp_path / "cache")
    forced = trace_corpus(corpus, dataset, **{**options, "trust_corpus": True}, force=True, cache=tmp_path / "cache")
    assert not forced.unchanged
    assert set(there(bucket, "/traces/lua")) == names
    assert not list((tmp_path / "cache/uploads").glob("*/*"))
    put(bucket, "mine/thesis.tex", b"mine", tmp_path)
    with pytest.raises(UsageError, match=r"mine: is not empty, and not a dataset: it holds thesis\.tex; name another"):
        trace_corpus(corpus, f"s3://bucket/mine{bucket}", **options, force=True, cache=tmp_path / "cache")


def test_an_upload_that_is_interrupted_leaves_no_part(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = parse_place(f"s3://bucket/part{bucket}")
    assert isinstance(place, RemotePath)
    (tmp_path / "whole").write_bytes(os.urandom(1000))

    def interrupted(source: BinaryIO, target: Any, *_: Any) -> None:
        target.write(source.read(500))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mlgo_corpus.files.remote.shutil.copyfileobj", interrupted)
        with pytest.raises(KeyboardInterrupt):
            place.upload(tmp_path / "whole")
    assert not place.is_file()
    place.upload(tmp_path / "whole")
    assert place.is_file()


def test_an_upload_that_fails_goes_on(
    bucket: str, llvm22: Llvm, lua22: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = f"s3://bucket/traces/lua{bucket}"
    options: dict[str, Any] = {"compiler": llvm22.clang, "via": "interactive", "module_filter": FEW}
    with monkeypatch.context() as patch:
        real, seen = RemotePath.upload, []

        def failing(self: RemotePath, path: Path) -> None:
            seen.append(path.name)
            if len(seen) == 3:
                raise CorpusError(f"{self}: no connection")
            real(self, path)

        patch.setattr(RemotePath, "upload", failing)
        with pytest.raises(MlgoCorpusError, match="no connection"):
            trace_corpus(lua22, dataset, **options, cache=tmp_path / "cache")
    assert "dataset.json" not in there(bucket, "/traces/lua")
    assert publishing.MARKER in there(bucket, "/traces/lua")
    report = trace_corpus(lua22, dataset, **options, cache=tmp_path / "cache")
    assert (report.unchanged, report.traced) == (True, 3)  # nothing was traced again
    assert "dataset.json" in there(bucket, "/traces/lua")
    assert publishing.MARKER not in there(bucket, "/traces/lua")


def test_what_force_began_does_not_replace_without_it(
    bucket: str, llvm22: Llvm, lua22: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = f"s3://bucket/d{bucket}"
    options: dict[str, Any] = {"compiler": llvm22.clang, "via": "interactive", "module_filter": FEW}
    trace_corpus(lua22, dataset, **options, cache=tmp_path / "cache")
    before = there(bucket)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_upload", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            trace_corpus(lua22, dataset, **options, trust_corpus=True, force=True, cache=tmp_path / "cache")
    with pytest.raises(UsageError, match=r"^s3://bucket/d: made in another way: .* was False, is True; `force`"):
        trace_corpus(lua22, dataset, **options, trust_corpus=True, cache=tmp_path / "cache")
    assert there(bucket) == before
    assert trace_corpus(lua22, dataset, **options, cache=tmp_path / "cache").unchanged
    assert there(bucket) == before


@pytest.mark.parametrize("name", ["sizes", "sizes.parquet"])
def test_a_table_of_sizes(bucket: str, llvm22: Llvm, lua22: Path, tmp_path: Path, name: str) -> None:
    corpus, output = f"s3://bucket/lua{bucket}", f"s3://bucket/{name}{bucket}"
    pack_corpus(lua22, corpus)
    options: dict[str, Any] = {"compiler": llvm22.clang, "module_filter": FEW, "cache": tmp_path / "cache"}
    report = ir2native_table(corpus, output, **options)
    assert (report.output, report.sized) == (f"s3://bucket/{name}", 3)
    assert ir2native_table(corpus, output, **options).unchanged
    ir2native_table(lua22, tmp_path / name, **options)
    found = there(bucket)
    for path in tmp_path.rglob(f"{name.removesuffix('.parquet')}*"):
        if path.is_file():
            assert path.relative_to(tmp_path).as_posix() in found
    rows = "sizes.parquet" if name.endswith(".parquet") else "sizes/functions/part-00000.parquet"
    assert parse_place(f"s3://bucket/{rows}{bucket}").read_bytes() == (tmp_path / rows).read_bytes()  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["decisions", "decisions.parquet"])
def test_logs_there_and_back(bucket: str, tmp_path: Path, name: str) -> None:
    url = f"s3://bucket/{name}{bucket}"
    report = convert_logs(LOG, url)
    assert (report.output, report.converted, report.unchanged) == (f"s3://bucket/{name}", 1, False)
    assert convert_logs(LOG, url).unchanged
    done = mlgo("parquet-to-logs", url, "--output", tmp_path / "again")
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.read_bytes() for path in (tmp_path / "again").rglob("*") if path.is_file()] == [LOG.read_bytes()]
    assert not list((tmp_path / "cache").glob("mlgo-scratch-*"))
    with pytest.raises(UsageError, match=r"^s3://bucket/nothing: no such file or folder$"):
        restore_logs(f"s3://bucket/nothing{bucket}", tmp_path / "more")


def test_groups_of_logs(bucket: str, tmp_path: Path) -> None:
    url = f"s3://bucket/decisions{bucket}"
    report = convert_logs(LOGS, url, group_by_header=True)
    outputs = [str(group.output) for group in report.groups]
    assert outputs == [
        f"s3://bucket/decisions/{name}" for name in ("inlining", "regalloc-eviction", "regalloc-priority")
    ]
    restore_logs(f"{outputs[2]}{bucket}", tmp_path / "again")
    assert len(tree(tmp_path / "again")) == 6
    assert convert_logs(LOGS, url, group_by_header=True).unchanged


def test_force_removes_only_what_is_of_the_dataset(bucket: str, tmp_path: Path) -> None:
    convert_logs(LOG, f"s3://bucket/data/ds{bucket}")
    foreign = ("data/corpora/big.parquet", "data/notes.txt", "data/ds/checkpoints/model.pt", "data/ds/sub/dataset.json")
    old = {"data/ds/observations/part-00001.parquet", "data/ds/flips.parquet", "data/ds/search.parquet"}
    for name in (*foreign, *old):
        put(bucket, name, b"mine", tmp_path)
    before = there(bucket)
    for group_by_header in (False, True):
        with pytest.raises(UsageError, match=r"^s3://bucket/data: is not empty, and not a dataset: it holds corpora/b"):
            convert_logs(LOG, f"s3://bucket/data{bucket}", group_by_header=group_by_header, force=True)
        assert there(bucket) == before
    convert_logs(LOG, f"s3://bucket/data/ds{bucket}", force=True)
    assert set(there(bucket)) == set(before) - old
    put(bucket, "kaggle/dataset.json", b'{"tool": "another"}', tmp_path)
    with pytest.raises(UsageError, match=r"^s3://bucket/kaggle: is not empty, and not a dataset: it holds dataset\.j"):
        convert_logs(LOG, f"s3://bucket/kaggle{bucket}", force=True)


def test_force_removes_groups_of_other_logs_alone(bucket: str, tmp_path: Path) -> None:
    url = f"s3://bucket/groups{bucket}"
    convert_logs(LOGS, url, group_by_header=True)
    put(bucket, "groups/regalloc-priority/model.pt", b"mine", tmp_path)
    convert_logs(LOG, url, group_by_header=True, force=True)
    left = there(bucket, "/groups")
    assert {name.partition("/")[0] for name in left} == {"regalloc-priority"}
    assert left["regalloc-priority/model.pt"] == 4


def test_foreign_tables_beside_a_single_file_are_kept(bucket: str, tmp_path: Path) -> None:
    url = f"s3://bucket/e/x.parquet{bucket}"
    put(bucket, "e/x.modules.parquet", b"mine", tmp_path)
    with pytest.raises(UsageError) as raised:
        convert_logs(LOG, url)
    assert str(raised.value) == (
        "s3://bucket/e/x.modules.parquet: is in the way, and was not made by mlgo-corpus; `force` replaces it"
    )
    assert there(bucket) == {"e/x.modules.parquet": 4}
    convert_logs(LOG, url, force=True)
    parse_place(url).unlink()  # type: ignore[union-attr]  # as an interrupted upload leaves it
    assert convert_logs(LOG, url).converted == 1


def test_the_command_line(bucket: str, llvm22: Llvm, lua22: Path, tmp_path: Path) -> None:
    corpus, dataset = f"s3://bucket/lua{bucket}", f"s3://bucket/d{bucket}"
    done = mlgo("pack", lua22, "--output", corpus)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("s3://bucket/lua: 34 modules, ")
    done = mlgo(
        "trace", corpus, "--output", dataset, "--compiler", llvm22.clang, "--via", "interactive",
        "--module-filter", FEW, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["output"] == "s3://bucket/d"
    done = mlgo("logs-to-parquet", LOG, "--output", f"s3://bucket/logs{bucket}")
    assert done.returncode == 0, done.stderr
    assert "FROM 's3://bucket/logs/observations/*.parquet'" in done.stdout


def test_two_at_once(bucket: str, small: Path, tmp_path: Path) -> None:
    url = f"s3://bucket/corpus{bucket}"
    place = parse_place(url)
    assert isinstance(place, RemotePath)
    with (
        publishing.staging_folder(place, tmp_path / "cache"),
        pytest.raises(UsageError, match=r"^s3://bucket/corpus: another mlgo-corpus is writing there; wait for it$"),
    ):
        pack_corpus(small, url)


def test_workers_do_not_share_a_connection(bucket: str, small: Path) -> None:
    from mlgo_corpus.engine import pool as engine

    remote._filesystem.cache_clear()
    assert not remote.in_use()
    there(bucket)
    assert remote.in_use()
    assert not engine._may_fork()


# --- verbs that take corpora


def test_a_corpus_behind_a_url_is_an_input(bucket: str, lua22: Path, tmp_path: Path) -> None:
    """What is made of it is what is made of the folder, and nothing there changes."""
    url = f"s3://bucket/all/corpus{bucket}"
    pack_corpus(lua22, url, jobs=1)
    before = there(bucket)
    ours, theirs = corpus_stats(url, by="language"), corpus_stats(lua22, by="language")
    assert (str(ours.corpus), ours.from_table) == ("s3://bucket/all/corpus", True)
    assert (ours.modules, ours.sizes, ours.groups) == (34, theirs.sizes, theirs.groups)

    combined = [combine_corpora([f"lua={corpus}"], tmp_path / name) for name, corpus in (("a", url), ("b", lua22))]
    assert [report.modules for report in combined] == [34, 34]
    ours_tree, theirs_tree = (
        {name: data for name, data in tree(tmp_path / which).items() if name != "modules.parquet"}
        for which in ("a", "b")
    )
    assert ours_tree == theirs_tree

    for near in (None, 0.3):
        assert dedup_corpus(url, near=near, jobs=1).dropped == dedup_corpus(lua22, near=near, jobs=1).dropped
    with pytest.raises(UsageError, match=r"^s3://bucket/all/corpus: is packed and cannot be changed: `output` makes"):
        split_corpus(url)
    split_corpus(url, output=tmp_path / "sides", jobs=1)
    assert split_corpus(lua22, output=tmp_path / "sides", jobs=1).unchanged

    for name, corpus in (("ours.parquet", url), ("theirs.parquet", lua22)):
        report = verify_corpus(corpus, output=tmp_path / name, jobs=1)
        assert (report.failed, report.has_table) == (0, True)
    assert pq.read_table(tmp_path / "ours.parquet").equals(pq.read_table(tmp_path / "theirs.parquet"))
    assert there(bucket) == before


def test_a_side_behind_a_url_is_verified_as_one(bucket: str, lua22: Path, tmp_path: Path) -> None:
    corpus = shutil.copytree(lua22, tmp_path / "corpus")
    split_corpus(corpus, jobs=1)
    pack_corpus(corpus, f"s3://bucket/split{bucket}", jobs=1)
    assert verify_corpus(f"s3://bucket/split{bucket}", jobs=1).counts == {"ok": 34}
    side = verify_corpus(f"s3://bucket/split/corpus_description.test.json{bucket}", jobs=1)
    assert side.counts == verify_corpus(corpus / "corpus_description.test.json", jobs=1).counts


@pytest.mark.parametrize("verb", ["stats", "verify", "dedup"])
def test_verbs_take_urls(bucket: str, small: Path, tmp_path: Path, verb: str) -> None:
    pack_corpus(small, f"s3://bucket/small{bucket}", jobs=1)
    done = mlgo(verb, f"s3://bucket/small{bucket}", cwd=tmp_path)
    assert done.stdout.startswith("s3://bucket/small: ")
    assert done.returncode == mlgo(verb, small, cwd=tmp_path).returncode


def test_a_dataset_behind_a_url_is_exported(bucket: str, tmp_path: Path) -> None:
    logs = [LOGS / f"regalloc-priority.{name}.log" for name in ("lapi", "lvm")]
    convert_logs(logs, tmp_path / "d")
    convert_logs(logs, f"s3://bucket/d{bucket}")
    here = export_tfrecord(tmp_path / "d", tmp_path / "here")
    there = export_tfrecord(f"s3://bucket/d{bucket}", tmp_path / "there")
    assert (there.sequences, there.steps) == (here.sequences, here.steps)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    with pytest.raises(UsageError, match="s3://bucket/none: no such file or folder"):
        export_tfrecord(f"s3://bucket/none{bucket}", tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith("mlgo-scratch-")) == []


def put_all(query: str, name: str, folder: Path) -> str:
    """Put a folder, or a single file's table and what is beside it, into the bucket; give its URL."""
    place = parse_place(f"s3://bucket/{name}{query}")
    assert isinstance(place, RemotePath)
    for path in folder.rglob("*") if folder.is_dir() else folder.parent.glob(f"{folder.stem}.*"):
        if path.is_file():
            (place / str(path.relative_to(folder)) if folder.is_dir() else place.parent / path.name).upload(path)
    return f"s3://bucket/{name}{query}"


def test_a_report_on_what_is_behind_urls(bucket: str, small: Path, tmp_path: Path) -> None:
    inputs = [
        plain_trace(tmp_path / "trace", {"m": 900, "n": 1100}),
        sizes(tmp_path / "sizes", function_columns(100)),
        tmp_path / "logs.parquet",
        small,
        sizes(tmp_path / "again", function_columns(100, seed=1)),
    ]
    convert_logs([LOG], inputs[2])
    here = report_page(inputs, tmp_path / "here.html")
    urls = [put_all(bucket, path.name, path) for path in inputs[:3]]
    pack_corpus(small, f"s3://bucket/corpus{bucket}", jobs=1)
    urls += [f"s3://bucket/corpus{bucket}", put_all(bucket, "again", inputs[4])]
    there = report_page(urls, tmp_path / "there.html")
    for mine, theirs in zip(here.sections, there.sections, strict=True):
        if mine["kind"] != "comparison":
            assert theirs.pop("path") == f"s3://bucket/{Path(mine.pop('path')).name}"
        assert mine == theirs
    assert [section["label"] for section in there.sections[5:]] == ["sizes → again"]
    assert there.title == "trace, sizes, logs.parquet, corpus and 1 more"
    text = (tmp_path / "there.html").read_text()
    assert all(f"<code>s3://bucket/{name}</code>" in text for name in ("trace", "sizes", "logs.parquet", "corpus"))
    assert "endpoint_override" not in text
    assert str(tmp_path) not in text
    assert not list((tmp_path / "cache").glob("mlgo-scratch-*"))


def test_what_a_report_cannot_tell_of_behind_a_url(bucket: str, tmp_path: Path) -> None:
    folder = plain_trace(tmp_path / "d", {"m": 900})
    (folder / "observations" / "part-00000.parquet").write_bytes(b"PAR1 and no more")
    damaged = put_all(bucket, "damaged", folder)
    put(bucket, "other/dataset.json", b'{"tool": "another"}', tmp_path)
    put(bucket, "torn/dataset.json", b'{"tool"', tmp_path)
    put(bucket, "text.parquet", b"no parquet", tmp_path)
    for name, message in (
        ("damaged", "s3://bucket/damaged/observations/part-00000.parquet: "),
        ("damaged/observations/part-00000.parquet", "s3://bucket/damaged/observations/part-00000.parquet: "),
        ("damaged/modules.parquet", "s3://bucket/damaged/modules.parquet: is part of a dataset"),
        ("other", "s3://bucket/other/dataset.json: not a dataset of mlgo-corpus"),
        ("torn", "s3://bucket/torn/dataset.json: not JSON"),
        ("text.parquet", "s3://bucket/text.parquet: "),
        ("none.parquet", "s3://bucket/none.parquet: "),
        ("none", "s3://bucket/none: not a packed corpus"),
    ):
        with pytest.raises(UsageError) as raised:
            report_page([f"s3://bucket/{name}{bucket}"], tmp_path / "page.html")
        assert str(raised.value).startswith(message), name
        assert str(tmp_path) not in str(raised.value), name
    with pytest.raises(UsageError, match=r"^s3://bucket/d/dataset\.json: no connection"):
        report_page(["s3://bucket/d?endpoint_override=http://127.0.0.1:1&region=us-east-1"], tmp_path / "page.html")
    with pytest.raises(UsageError, match=r"^s3://bucket/damaged/"):
        export_tfrecord(damaged, tmp_path / "records")
    assert not (tmp_path / "page.html").exists()
    assert not list((tmp_path / "cache").glob("mlgo-scratch-*"))
