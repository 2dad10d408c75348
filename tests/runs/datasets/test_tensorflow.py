"""TensorFlow itself reads what is exported, in the way in which ml-compiler-opt's readers ask it to.

``make test`` does not install TensorFlow: ``pip install tensorflow-cpu`` beside the test tools, and run this file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlgo_corpus import export_tfrecord, read_tfrecord
from tests.runs.datasets.test_export import logs_of, make_dataset
from tests.runs.datasets.test_logs import KINDS

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("ignore")]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
REGISTERS = 33
# What the trainers' signatures have beside the features that are scalars of int64 (rl/*/config.py).
TENSORS = {"mask", "is_hint", "is_local", "is_free", "max_stage", "min_stage"}
FLOATS = {"progress", "weight", "priority", "reward"}


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed (make test does not)")


def parsed(tf: Any, path: Path, names: set[str]) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Read a file as ``data_reader.py`` does: with a fixed shape and type for each list, and more than two steps."""

    def feature(name: str) -> Any:
        if name in FLOATS:
            return tf.io.FixedLenSequenceFeature((), tf.float32)
        ends = ("_by_max", "e_size", "_density", "_uses", "_hints", "_urgent", "_rematerializable")
        if name.endswith(ends):
            return tf.io.FixedLenSequenceFeature((REGISTERS,), tf.float32)
        return tf.io.FixedLenSequenceFeature((REGISTERS,) if name in TENSORS else (), tf.int64)

    features = {name: feature(name) for name in names}
    records = (
        tf.data.TFRecordDataset([str(path)])
        .map(lambda data: tf.io.parse_single_sequence_example(data, {}, features)[1])
        .filter(lambda sequence: tf.size(sequence["reward"]) > 2)
    )
    return [{name: values.numpy() for name, values in sequence.items()} for sequence in records]


@pytest.mark.parametrize("kind", KINDS)
def test_tensorflow_reads_it(tf: Any, tmp_path: Path, kind: str) -> None:
    dataset = make_dataset(tmp_path / "in", logs_of(kind))
    reward = "zero" if kind == "inlining" else "logged"
    report = export_tfrecord(dataset, tmp_path / "t", reward=reward, min_steps=1)
    ours = [example.arrays() for example in read_tfrecord(tmp_path / "t")]
    ours = [arrays for arrays in ours if len(arrays["reward"]) > 2]
    theirs = parsed(tf, tmp_path / "t", set(ours[0]))
    assert (
        len(theirs)
        == len(ours)
        == report.sequences
        - sum(len(list(example.arrays()["reward"])) < 3 for example in read_tfrecord(tmp_path / "t"))
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name, values in other.items():
            assert values.tobytes() == mine[name].tobytes(), name
            assert values.dtype == mine[name].dtype


def test_shards_are_found_by_a_pattern(tf: Any, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "in", logs_of("regalloc-priority"))
    report = export_tfrecord(dataset, tmp_path / "s", shards=3)
    files = tf.data.Dataset.list_files(str(tmp_path / "s" / "*.tfrecord"), shuffle=False)
    assert sum(1 for _ in files.interleave(tf.data.TFRecordDataset)) == report.sequences


def test_our_bytes_are_those_of_its_own_writer(tf: Any, tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "in", logs_of("regalloc-eviction"))
    export_tfrecord(dataset, tmp_path / "t")
    messages = [record.numpy() for record in tf.data.TFRecordDataset([str(tmp_path / "t")])]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for message in messages:
            example = tf.train.SequenceExample.FromString(message)
            writer.write(example.SerializeToString(deterministic=True))
    assert (tmp_path / "theirs").read_bytes() == (tmp_path / "t").read_bytes()
