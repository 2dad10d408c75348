"""Export to TFRecords: byte for byte what protobuf's own encoder makes of the logs, read event by event."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlgo_corpus import TensorSpec, convert_logs, export_tfrecord, read_tfrecord
from mlgo_corpus.dataset import rows as datasetrows
from mlgo_corpus.dataset import sequences
from mlgo_corpus.dataset.folder import DatasetPaths, read_key
from mlgo_corpus.dataset.logtable import read_log_rows
from mlgo_corpus.dataset.tracetable import TraceRow, write_trace_rows
from mlgo_corpus.errors import CorpusError, FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.formats.logs.events import Context, LogHeader, LogReader, Observation
from mlgo_corpus.formats.records.tfrecord import encode_record, read_records
from mlgo_corpus.runs.datasets import export as exporting
from tests.cli.test_cli import mlgo
from tests.conftest import PACKAGE_ROOT
from tests.dataset.test_restore import rewrite
from tests.formats.records.test_tfrecord import plain_record
from tests.runs.datasets import tensorflow_proto as proto
from tests.runs.datasets.test_logs import KINDS, real_logs

pytestmark = pytest.mark.whole

# The plain implementation


def iter_examples(
    logs: Mapping[str, bytes], rewards: Mapping[str, float | None] | str, min_steps: int = 3
) -> Iterator[tuple[int, Any]]:
    """Yield a log's sequences in the order in which they end, as (steps, message).

    ``rewards`` are of each log, or ``logged``, or ``none``.
    """
    for name, data in logs.items():
        reader = LogReader(io.BytesIO(data))
        header: LogHeader = reader.header
        context, ended = None, {}
        examples: dict[str | None, list[Observation]] = {}
        for number, event in enumerate(reader):
            if isinstance(event, Context):
                context = event.name
            elif isinstance(event, Observation):
                examples.setdefault(context, []).append(event)
                ended[context] = number
        for key in sorted(examples, key=lambda each: ended[each]):
            steps = examples[key]
            reward: float | None = 0.0
            if rewards == "logged" and header.score is not None and steps[-1].score is not None:
                reward = float(np.frombuffer(steps[-1].score, header.score.dtype)[0])
            elif isinstance(rewards, Mapping):
                reward = rewards[name]
            if len(steps) < min_steps or reward is None:
                continue
            example = proto.SequenceExample()
            for step in steps:
                offset = 0
                for spec in header.features:
                    values = np.frombuffer(step.tensors, spec.dtype, spec.element_count, offset)
                    offset += spec.nbytes
                    if spec.name != "reward":
                        proto.add_step(example, spec.name, values)
                if header.score is not None and header.score.name != "reward":
                    proto.add_step(example, header.score.name, np.frombuffer(step.score or b"", header.score.dtype))
                if rewards != "none":
                    proto.add_step(example, "reward", np.array([reward], np.float64).astype(np.float32))
            yield len(steps), example


def expected(logs: Mapping[str, bytes], rewards: Mapping[str, float | None] | str, min_steps: int = 3) -> bytes:
    return b"".join(encode_record(proto.encode(example)) for _, example in iter_examples(logs, rewards, min_steps))


def logs_of(kind: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in real_logs(kind)}


def zero(logs: Mapping[str, bytes]) -> dict[str, float | None]:
    return dict.fromkeys(logs, 0.0)


def make_dataset(folder: Path, logs: Mapping[str, bytes], **options: Any) -> Path:
    (folder / "logs").mkdir(parents=True)
    for name, data in logs.items():
        (folder / "logs" / name).write_bytes(data)
    convert_logs(folder / "logs", folder / "d", jobs=1, **options)
    return folder / "d"


def make_trace(dataset: Path, rewards: Mapping[str, float | None]) -> None:
    """Make a dataset of traces of one of logs: what tells of its modules is another table."""
    paths = DatasetPaths.of(dataset)
    rows = [
        TraceRow(row.module, "ok", "ok", "", reward=rewards.get(f"{row.module}.log"))._replace(
            contexts=row.contexts, observations=row.observations, header=row.header, separator=row.separator
        )
        for row in read_log_rows(paths.modules)
    ]
    rows.append(TraceRow("lost", "failed", "timeout", "too slow"))
    write_trace_rows(paths.modules, rows, {"key": read_key(paths)})


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("datasets")
    return {kind: make_dataset(folder / kind, logs_of(kind)) for kind in KINDS}


@pytest.fixture
def dataset(datasets: dict[str, Path], tmp_path: Path) -> Path:
    """A dataset of inlining logs that may be damaged."""
    return Path(shutil.copytree(datasets["inlining"], tmp_path / "in" / "d"))


# What is written


@pytest.mark.parametrize("reward", ["zero", "none", "logged"])
def test_real_logs(datasets: dict[str, Path], tmp_path: Path, kind: str, reward: str) -> None:
    if (kind, reward) == ("inlining", "logged"):
        with pytest.raises(UsageError, match="its logs have no score; `reward` zero writes 0"):
            export_tfrecord(datasets[kind], tmp_path / "t", reward=reward)
        return
    logs = logs_of(kind)
    wanted = expected(logs, zero(logs) if reward == "zero" else reward)
    for jobs in (1, 2):
        report = export_tfrecord(datasets[kind], tmp_path / f"{jobs}", reward=reward, jobs=jobs)
        assert (tmp_path / f"{jobs}").read_bytes() == wanted
    found = [steps for steps, _ in iter_examples(logs, "none", 1)]
    assert (report.sequences, report.steps) == (sum(n > 2 for n in found), sum(n for n in found if n > 2))
    assert (report.too_short, report.no_reward, report.too_large, report.missing) == (
        sum(n < 3 for n in found),
        0,
        0,
        0,
    )
    assert (report.output_bytes, report.files, report.reward, report.task) == (len(wanted), 1, reward, kind)
    assert report.exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_rewards_of_runs(dataset: Path, tmp_path: Path) -> None:
    logs = logs_of("inlining")
    rewards = {name: None if "lvm" in name else index / 7 for index, name in enumerate(logs)}
    make_trace(dataset, rewards)
    report = export_tfrecord(dataset, tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == expected(logs, rewards)
    assert (report.reward, report.sequences, report.no_reward, report.missing) == ("size", 2, 1, 1)
    assert report.exit_code == 1
    example = next(read_tfrecord(tmp_path / "t")).arrays()
    assert example["reward"].tolist() == [[float(np.float32(rewards["inlining.lapi.log"] or 0))]] * len(
        example["reward"]
    )


def test_no_reward_at_all(dataset: Path, tmp_path: Path) -> None:
    make_trace(dataset, {})
    with pytest.raises(UsageError, match="the reward of 3 sequences is unknown; `reward` zero writes 0"):
        export_tfrecord(dataset, tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_auto_is_what_the_task_has(datasets: dict[str, Path], tmp_path: Path) -> None:
    for kind in KINDS[1:]:
        assert export_tfrecord(datasets[kind], tmp_path / kind).reward == "logged"
        assert (tmp_path / kind).read_bytes() == expected(logs_of(kind), "logged")
    with pytest.raises(UsageError, match="made from training logs, which have no sizes; use a trace, or: `reward`"):
        export_tfrecord(datasets["inlining"], tmp_path / "inlining")


@pytest.mark.parametrize("min_steps", [1, 2, 40])
def test_the_fewest_steps(datasets: dict[str, Path], tmp_path: Path, min_steps: int) -> None:
    logs = logs_of("regalloc-priority")
    report = export_tfrecord(datasets["regalloc-priority"], tmp_path / "t", min_steps=min_steps)
    assert (tmp_path / "t").read_bytes() == expected(logs, "logged", min_steps)
    assert report.too_short == sum(steps < min_steps for steps, _ in iter_examples(logs, "none", 1))


def test_all_too_short(datasets: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="all 5 sequences have fewer than 1000 steps; `min_steps` 1 keeps them"):
        export_tfrecord(datasets["regalloc-eviction"], tmp_path / "t", min_steps=1000)
    assert list(tmp_path.iterdir()) == []


TYPES = ("float", "double", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t")
EVERYTHING = (
    *(TensorSpec(f"one_{kind}", kind, (1,)) for kind in TYPES),
    *(TensorSpec(f"many_{kind}", kind, (1, 3)) for kind in TYPES),
)


class PlainLog:
    """Writes a log, as the format's description says."""

    def __init__(self, features: tuple[TensorSpec, ...], score: TensorSpec | None = None) -> None:
        self.header = LogHeader(features, score)
        self.data = self.header.line + b"\n"
        self.number = 0

    def context(self, name: str) -> None:
        self.data += b'{"context":"%s"}\n' % name.encode()

    def observation(self, values: list[np.ndarray[Any, Any]]) -> None:
        tensors = b"".join(each.tobytes() for each in values[: len(self.header.features)])
        self.data += b'{"observation":%d}\n%s\n' % (self.number, tensors)
        if self.header.score is not None:
            self.data += b'{"outcome":%d}\n%s\n' % (self.number, values[-1].tobytes())
        self.number += 1


def random_log(
    generator: random.Random, features: tuple[TensorSpec, ...], score: TensorSpec | None, rows: int = 40
) -> bytes:
    """A log with contexts that come back, that have no observations, and observations before the first of them."""
    numbers = np.random.default_rng(generator.randrange(1 << 32))
    log = PlainLog(features, score)
    for _ in range(generator.randrange(1, rows)):
        if generator.random() < 0.3:
            log.context(f"f{generator.randrange(4)}")
        values = []
        for spec in log.header.columns:
            if spec.dtype.kind == "f":
                values.append(numbers.normal(size=spec.shape).astype(spec.dtype))
            else:
                most = min(int(np.iinfo(spec.dtype).max), (1 << 63) - 1) >> int(numbers.integers(0, 63))
                least = 0 if spec.dtype.kind == "u" or numbers.random() < 0.7 else int(np.iinfo(spec.dtype).min)
                values.append(numbers.integers(least, most, spec.shape, endpoint=True).astype(spec.dtype))
        log.observation(values)
    return log.data


@given(st.integers(0, 1 << 32), st.sampled_from([None, "reward", "delta_size"]), st.integers(1, 7))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, score: str | None, batch: int) -> None:
    """Also where batches, the pieces that are held, and shares are a few rows."""
    generator = random.Random(seed)
    spec = (
        None
        if score is None
        else TensorSpec(score, generator.choice(("float", "int64_t")), (generator.choice((1, 2)),))
    )
    logs = {
        f"m{number}.log": random_log(generator, EVERYTHING, spec, rows=16)
        for number in range(generator.randrange(1, 4))
    }
    folder = tmp_path / f"{seed}-{score}-{batch}-{generator.random()}"
    dataset = make_dataset(folder, logs, rows_per_file=generator.randrange(2, 14))
    rewards: Any = "logged" if score else "none"
    row_bytes = sum(each.nbytes for each in EVERYTHING)
    with monkeypatch.context() as patch:
        patch.setattr(datasetrows, "_BATCH_BYTES", batch * row_bytes)
        patch.setattr(sequences, "_HELD_BYTES", generator.choice((0, 2000, 1 << 20)))
        patch.setattr(sequences, "_EQUAL_STEPS", 3)
        patch.setattr(exporting, "_SHARE_BYTES", generator.choice((1, 15 * row_bytes)))
        export_tfrecord(dataset, folder / "t", reward=rewards, min_steps=1, jobs=1)
        export_tfrecord(dataset, folder / "s", reward=rewards, min_steps=1, jobs=1, shards=2)
    wanted = expected(logs, rewards, 1)
    assert (folder / "t").read_bytes() == wanted
    assert b"".join(path.read_bytes() for path in sorted((folder / "s").glob("*.tfrecord"))) == wanted
    shutil.rmtree(folder)


def test_a_single_file_dataset(tmp_path: Path) -> None:
    logs = logs_of("regalloc-eviction")
    convert_logs(real_logs("regalloc-eviction"), tmp_path / "d.parquet")
    export_tfrecord(tmp_path / "d.parquet", tmp_path / "t")
    assert (tmp_path / "t").read_bytes() == expected(logs, "logged")


def test_sequences_too_large_for_protobuf(
    datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [proto.encode(example) for _, example in iter_examples(logs_of("regalloc-eviction"), "logged")]
    sizes = sorted(map(len, examples))
    monkeypatch.setattr(sequences, "MAX_MESSAGE_BYTES", sizes[-2])
    for batch in (1, 1 << 20):
        monkeypatch.setattr(datasetrows, "_BATCH_BYTES", batch)
        report = export_tfrecord(datasets["regalloc-eviction"], tmp_path / "t", jobs=1, force=True)
        assert (report.sequences, report.too_large, report.exit_code) == (len(sizes) - 1, 1, 1)
        kept = b"".join(encode_record(data) for data in examples if len(data) < sizes[-1])
        assert (tmp_path / "t").read_bytes() == kept


# Shards, choices


def test_shards(datasets: dict[str, Path], tmp_path: Path) -> None:
    report = export_tfrecord(datasets["regalloc-priority"], tmp_path / "s", shards=3, jobs=2)
    names = [f"traces-{number:05d}-of-00003.tfrecord" for number in range(3)]
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["export.json", *names]
    files = [(tmp_path / "s" / name).read_bytes() for name in names]
    assert b"".join(files) == expected(logs_of("regalloc-priority"), "logged")
    assert (report.files, report.output_bytes) == (3, sum(map(len, files)))
    about = json.loads((tmp_path / "s/export.json").read_bytes())
    assert about["files"] == names
    assert about["header"] == json.loads(
        json.dumps(real_logs("regalloc-priority")[0].read_text("latin-1").split("\n")[0])
    )
    assert (about["sequences"], about["steps"], about["reward"]) == (report.sequences, report.steps, "logged")


def test_several_workers(datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module is a share of its own, whose files are joined."""
    monkeypatch.setattr(exporting, "_SHARE_BYTES", 1)
    wanted = expected(logs_of("regalloc-priority"), "logged")
    told: list[tuple[int, int]] = []
    report = export_tfrecord(
        datasets["regalloc-priority"], tmp_path / "t", jobs=2, progress=lambda *done: told.append(done)
    )
    assert (tmp_path / "t").read_bytes() == wanted
    assert report.output_bytes == len(wanted)
    assert (told[-1], len(told)) == ((2892, 2892), 5)
    export_tfrecord(datasets["regalloc-priority"], tmp_path / "s", jobs=2, shards=2)
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "s").glob("*.tfrecord"))) == wanted
    assert len(list((tmp_path / "s").iterdir())) == 3


def test_a_worker_that_dies_midway_is_replaced(
    datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had written of its file is not in the result."""
    monkeypatch.setattr(exporting, "_SHARE_BYTES", 1)
    monkeypatch.setattr(exporting, "write_share", dies_once)
    monkeypatch.setenv("DIES_ONCE", str(tmp_path / "died"))
    export_tfrecord(datasets["regalloc-priority"], tmp_path / "t", jobs=2)
    assert (tmp_path / "died").exists()
    assert (tmp_path / "t").read_bytes() == expected(logs_of("regalloc-priority"), "logged")


_write_share = exporting.write_share


def dies_once(task: exporting.ShareTask) -> sequences.SequenceCounts:
    counts = _write_share(task)
    died = Path(os.environ["DIES_ONCE"])
    if not died.exists():
        died.touch()
        os._exit(1)
    return counts


def test_a_worker_that_always_dies(datasets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "_SHARE_BYTES", 1)
    monkeypatch.setattr(exporting, "write_share", always_dies)
    with pytest.raises(MlgoCorpusError, match="a worker was lost"):
        export_tfrecord(datasets["regalloc-priority"], tmp_path / "t", jobs=2)
    assert list(tmp_path.iterdir()) == []


def always_dies(task: exporting.ShareTask) -> sequences.SequenceCounts:
    os._exit(1)


def test_files_are_joined_without_help_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> int:
        raise OSError(errno.EINVAL, "no")

    for help_of_kernel in (True, False):
        (tmp_path / "a").write_bytes(b"one" * 9)
        (tmp_path / "b").write_bytes(b"two" * 100_000)
        if not help_of_kernel:
            monkeypatch.setattr(sequences.os, "sendfile", refuses)
        sequences.append_file(tmp_path / "b", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == b"one" * 9 + b"two" * 100_000
        assert not (tmp_path / "b").exists()


def test_no_more_shards_than_modules(datasets: dict[str, Path], tmp_path: Path) -> None:
    report = export_tfrecord(datasets["inlining"], tmp_path / "s", shards=100, reward="zero", min_steps=1)
    with_rows = sum(row.observations > 0 for row in read_log_rows(datasets["inlining"] / "modules.parquet"))
    assert (report.files, report.modules) == (with_rows, with_rows)
    assert report.hints == (f"{with_rows} files instead of 100: a module is in one file, and no more have decisions",)
    assert all(path.stat().st_size for path in (tmp_path / "s").glob("*.tfrecord"))


@pytest.mark.parametrize(("total", "shards"), [(7, 3), (7, 7), (5, 2), (1, 1), (100, 9)])
def test_every_shard_has_modules(total: int, shards: int) -> None:
    generator = random.Random(total)
    modules, at = [], 0
    for number in range(total):
        count = generator.choice((1, 1, 50, 5000))
        modules.append(datasetrows.ModuleRows(f"m{number}", at, count, None))
        at += count
    line = LogHeader((TensorSpec("x"),)).line
    rows = datasetrows.DatasetRows(Path("d"), line, (), tuple(modules), 0, False, None)
    shares = exporting.make_shares(rows, shards)
    assert [module for share in shares for module in share.modules] == modules
    assert sorted({share.shard for share in shares}) == list(range(shards))
    assert [share.shard for share in shares] == sorted(share.shard for share in shares)


def test_some_modules(datasets: dict[str, Path], tmp_path: Path) -> None:
    logs = logs_of("regalloc-priority")
    some = {name: data for name, data in logs.items() if "lapi" in name or "lvm" in name}
    report = export_tfrecord(datasets["regalloc-priority"], tmp_path / "t", module_filter="l(api|vm)$")
    assert (tmp_path / "t").read_bytes() == expected(some, "logged")
    assert report.modules == 2
    (tmp_path / "names").write_text("# these\nregalloc-priority.lvm\n\nunknown\nregalloc-priority.lapi\n")
    export_tfrecord(datasets["regalloc-priority"], tmp_path / "u", modules_file=tmp_path / "names")
    manifest = {"has_thinlto": False, "modules": ["regalloc-priority.lapi", "regalloc-priority.lvm"]}
    (tmp_path / "corpus_description.train.json").write_text(json.dumps(manifest, indent=2))
    export_tfrecord(
        datasets["regalloc-priority"], tmp_path / "v", modules_file=tmp_path / "corpus_description.train.json"
    )
    assert (tmp_path / "t").read_bytes() == (tmp_path / "u").read_bytes() == (tmp_path / "v").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": "text"}, "^reward text: expected one of auto, size, logged, zero, none$"),
        ({"min_steps": 0}, "min_steps 0: expected at least 1"),
        ({"jobs": 0}, "jobs 0: expected at least 1"),
        ({"shards": 0}, "shards 0: expected at least 1"),
        ({"shards": 10**9}, "shards 1000000000: expected at most 10000"),
        ({"module_filter": "("}, r"module_filter \(: not a regular expression"),
        ({"module_filter": "nowhere"}, "module_filter nowhere: .* has no decisions of a module with such a name"),
        ({"modules_file": "none"}, "modules_file none: No such file or directory"),
    ],
)
def test_options_that_cannot_be(
    datasets: dict[str, Path], tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export_tfrecord(datasets["inlining"], tmp_path / "t", **{"reward": "zero", **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{}", "[", '{"modules": [1]}', '{"modules": 3}', "[1]"])
def test_manifests_that_are_none(datasets: dict[str, Path], tmp_path: Path, content: str) -> None:
    (tmp_path / "m.json").write_text(content)
    with pytest.raises(UsageError, match=r"m\.json: expected the manifest of a corpus, or names, one a line"):
        export_tfrecord(datasets["inlining"], tmp_path / "t", reward="zero", modules_file=tmp_path / "m.json")


# What is there already, and who else is at it


def test_nothing_is_replaced_silently(datasets: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "t").write_text("mine")
    with pytest.raises(UsageError, match=r"t: is there already; `force` replaces it"):
        export_tfrecord(datasets["inlining"], tmp_path / "t", reward="zero")
    assert (tmp_path / "t").read_text() == "mine"
    export_tfrecord(datasets["inlining"], tmp_path / "t", reward="zero", force=True)
    assert (tmp_path / "t").read_bytes() == expected(logs_of("inlining"), zero(logs_of("inlining")))
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=r"folder: is a folder; name a file, or set `shards`"):
        export_tfrecord(datasets["inlining"], tmp_path / "folder", reward="zero", force=True)


def test_what_is_read_and_what_is_no_file_is_never_written_over(tmp_path: Path) -> None:
    dataset = tmp_path / "d.parquet"
    convert_logs(real_logs("regalloc-priority")[:1], dataset)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in before:
        with pytest.raises(UsageError, match=f"{name}: is an input, or a part of one; name another output"):
            export_tfrecord(dataset, tmp_path / name, force=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="fifo: is neither a file nor a folder"):
        export_tfrecord(dataset, tmp_path / "fifo", force=True)
    assert (tmp_path / "fifo").is_fifo()


def test_folders_that_were_made_for_nothing_go(datasets: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`min_steps` 1 keeps them"):
        export_tfrecord(datasets["inlining"], tmp_path / "new" / "folder" / "t", reward="zero", min_steps=10**6)
    assert list(tmp_path.iterdir()) == []
    export_tfrecord(datasets["inlining"], tmp_path / "new" / "folder" / "t", reward="zero")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["t"]


def test_no_folder_of_others_is_replaced(datasets: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/precious").write_text("mine")
    for force in (False, True):
        with pytest.raises(UsageError, match="is not empty, and not made by export; name another folder"):
            export_tfrecord(datasets["inlining"], tmp_path / "s", reward="zero", shards=2, force=force)
    assert (tmp_path / "s/precious").read_text() == "mine"
    (tmp_path / "s/precious").unlink()
    export_tfrecord(datasets["inlining"], tmp_path / "s", reward="zero", shards=2)
    with pytest.raises(UsageError, match=r"s: is there already; `force` replaces it"):
        export_tfrecord(datasets["inlining"], tmp_path / "s", reward="zero", shards=1)
    export_tfrecord(datasets["inlining"], tmp_path / "s", reward="zero", shards=1, force=True)
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["export.json", "traces-00000-of-00001.tfrecord"]


def test_a_damaged_dataset_keeps_what_was_there(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("before")
    [part] = dataset.glob("observations/*.parquet")
    data = bytearray(part.read_bytes())
    data[4:400] = bytes(396)
    part.write_bytes(data)
    with pytest.raises(CorpusError, match="cannot be read"):
        export_tfrecord(dataset, tmp_path / "t", reward="zero", force=True)
    assert (tmp_path / "t").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "t"]


def test_a_kill_leaves_nothing_under_the_name(datasets: dict[str, Path], tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom mlgo_corpus import export_tfrecord\nfrom mlgo_corpus.dataset import sequences\n"
        "def slow(*args): print('here', flush=True); time.sleep(100)\n"
        "sequences._Writer._write_batch = slow\n"
        f"export_tfrecord({str(datasets['inlining'])!r}, 't', reward='zero', jobs=1)\n"
    )
    process = subprocess.Popen(
        (sys.executable, "-c", script),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    with pytest.raises(UsageError, match=r"t: another mlgo-corpus is making it; wait for it"):
        export_tfrecord(datasets["inlining"], tmp_path / "t", reward="zero")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "t").exists()
    time.sleep(0.1)
    export_tfrecord(datasets["inlining"], tmp_path / "t", reward="zero")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


# Datasets that are not what we wrote


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[0].update(observations=7), "rows of observations, modules.parquet says"),
        (lambda rows: rows[0].update(module="x"), "row 0 is of inlining.lapi, but not according to modules.parquet"),
        (lambda rows: rows[0].update(header="junk"), "modules.parquet: "),
        (lambda rows: rows[0].update(header='{"features":[]}'), "its modules have different headers"),
        (
            lambda rows: [row.update(header='{"features":[]}') for row in rows],
            "not those of the header in modules.parq",
        ),
        (lambda rows: [row.update(header=None) for row in rows], "has no observations"),
        (lambda rows: rows.clear(), "has no observations"),
    ],
)
def test_tables_that_contradict_each_other(dataset: Path, tmp_path: Path, change: Any, message: str) -> None:
    rewrite(dataset / "modules.parquet", change)
    with pytest.raises(MlgoCorpusError) as caught:
        export_tfrecord(dataset, tmp_path / "t", reward="zero")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("column", ["module", "threshold"])
def test_observations_with_holes(dataset: Path, tmp_path: Path, column: str) -> None:
    [part] = dataset.glob("observations/*.parquet")
    table = pq.read_table(part)
    metadata = table.schema.metadata
    holes = table.column(column).combine_chunks()
    mask = np.zeros(len(table), bool)
    mask[5] = True
    holed = pc.if_else(pa.array(mask), pa.scalar(None, holes.type), holes)
    fields = [field.with_nullable(True) for field in table.schema]
    changed = table.set_column(
        table.schema.get_field_index(column), fields[table.schema.get_field_index(column)], holed
    )
    pq.write_table(changed.replace_schema_metadata(metadata), part)
    with pytest.raises(MlgoCorpusError) as caught:
        export_tfrecord(dataset, tmp_path / "t", reward="zero")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_numbers_that_no_trainer_reads(tmp_path: Path) -> None:
    log = PlainLog((TensorSpec("x", "uint64_t"),))
    for number in (1, 2, 1 << 63):
        log.observation([np.array([number], np.uint64)])
    dataset = make_dataset(tmp_path / "in", {"a.log": log.data})
    with pytest.raises(CorpusError, match="column x: 9223372036854775808 is no int64; trainers read only int64"):
        export_tfrecord(dataset, tmp_path / "t", reward="none")


def test_two_features_of_one_name(tmp_path: Path) -> None:
    spec = b'{"name":"x","type":"int8_t","port":0,"shape":[1]}'
    header = b'{"features":[%s,%s]}\n' % (spec, spec)
    log = header + b'{"context":"f"}\n' + b"".join(b'{"observation":%d}\n\1\2\n' % number for number in range(3))
    dataset = make_dataset(tmp_path / "in", {"a.log": log})
    with pytest.raises(UsageError, match="two features are called x: they cannot be told apart by name"):
        export_tfrecord(dataset, tmp_path / "t", reward="none")


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        export_tfrecord(tmp_path / "none", tmp_path / "t")
    with pytest.raises(UsageError, match="cannot be written to a URL"):
        export_tfrecord(tmp_path / "none", "s3://bucket/t")


# The reader


def test_read_tfrecord(datasets: dict[str, Path], tmp_path: Path) -> None:
    export_tfrecord(datasets["regalloc-eviction"], tmp_path / "t")
    examples = list(read_tfrecord(tmp_path / "t"))
    for example, (steps, other) in zip(examples, iter_examples(logs_of("regalloc-eviction"), "logged"), strict=True):
        arrays = example.arrays()
        assert arrays.keys() == set(other.feature_lists.feature_list)
        assert arrays["mask"].shape == (steps, 33)
        for name, values in arrays.items():
            theirs = other.feature_lists.feature_list[name].feature
            kind = "float_list" if values.dtype == np.float32 else "int64_list"
            wanted = np.array([list(getattr(step, kind).value) for step in theirs], values.dtype)
            assert np.array_equal(values, wanted, equal_nan=values.dtype == np.float32), name


def test_read_tfrecord_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="none: cannot be read: No such file or directory"):
        list(read_tfrecord(tmp_path / "none"))
    (tmp_path / "t").write_bytes(plain_record(b"") + b"short")
    with pytest.raises(FormatError, match="t: byte 16: reading a record's length, expected 12 bytes, got 5"):
        list(read_tfrecord(tmp_path / "t"))
    (tmp_path / "t").write_bytes(plain_record(b"") + plain_record(b"\xff"))
    with pytest.raises(FormatError, match="t: record 1: byte 0: reading a varint, expected more bytes"):
        list(read_tfrecord(tmp_path / "t"))


# The command


def test_the_command(datasets: dict[str, Path], tmp_path: Path) -> None:
    done = mlgo("export", datasets["regalloc-eviction"], "--output", "t.tfrecord", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["output", "sequences", "steps", "bytes", "files", "too", "short"]
    assert lines[2].split() == ["t.tfrecord", "5", "186", "418.4", "kB", "1", "0"]
    assert re.fullmatch(r"reward: logged; in \d+\.\d\d s( \(.* kB/s\))?", lines[3])
    with (tmp_path / "t.tfrecord").open("rb") as file:
        assert len(list(read_records(file))) == 5

    done = mlgo("export", datasets["regalloc-eviction"], "-o", "t.tfrecord", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mlgo-corpus: error: t.tfrecord: is there already; --force replaces it\n"

    options = ("--force", "--json", "--format", "tfrecord", "--min-steps", "100", "--jobs", "2")
    done = mlgo("export", datasets["regalloc-eviction"], "-o", "t.tfrecord", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert 0 < report.pop("seconds") < 60
    assert report == {
        "output": "t.tfrecord",
        "files": 1,
        "task": "regalloc-eviction",
        "reward": "logged",
        "modules": 2,
        "missing": 0,
        "sequences": 1,
        "steps": 137,
        "output_bytes": (tmp_path / "t.tfrecord").stat().st_size,
        "too_short": 4,
        "no_reward": 0,
        "too_large": 0,
        "min_steps": 100,
        "hints": [],
        "exit_code": 0,
    }


def test_the_command_says_what_was_not_written(dataset: Path, tmp_path: Path) -> None:
    make_trace(dataset, {"inlining.lvm.log": 0.5})
    done = mlgo("export", dataset, "-o", "t", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[2].split()[:2] == ["t", "1"]
    assert done.stderr.splitlines() == [
        "2 sequences not written: the reward of their modules is unknown; see modules.parquet for the reason",
        "hint: the dataset has no data of 1 module, because their runs failed",
    ]


def test_names_with_markup(datasets: dict[str, Path], tmp_path: Path) -> None:
    done = mlgo("export", datasets["regalloc-eviction"], "-o", "[bold]\n.tfrecord", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[2].startswith("[bold]\\n.tfrecord")
