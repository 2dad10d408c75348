"""The embeddings of IR2Vec as features, with the options that docs/coming-from.md names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq

from mlgo_corpus import CommandEdits, extract_corpus, trace_corpus
from tests.conftest import EMBED, Llvm

SOURCE = """
static int twice(int x) { return x * 2; }
int f(int x) { return twice(x) + 1; }
"""
SIZE = 3
# Some of what LLVM's vocabulary has; what is missing counts as zeros.
VOCABULARY = {
    "Opcodes": ["Ret", "Alloca", "Load", "Store", "Add", "Mul", "Shl", "Call"],
    "Types": ["VoidTy", "IntegerTy", "PointerTy"],
    "Arguments": ["Function", "Pointer", "Constant", "Variable"],
}


def test_embeddings_are_features(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text(SOURCE)
    argv = (llvm22.clang, "-Oz", *EMBED, "-c", "f.c", "-o", "f.o")
    subprocess.run(argv, cwd=tmp_path, check=True)
    extract_corpus([tmp_path / "f.o"], tmp_path / "corpus")
    vectors = {part: {name: [1.0] * SIZE for name in names} for part, names in VOCABULARY.items()}
    vocabulary = tmp_path / "vocabulary.json"
    vocabulary.write_text(json.dumps(vectors))

    names = ("-ml-inliner-ir2vec-vocab-file", "-ir2vec-vocab-path")
    edits = CommandEdits(add=tuple(f"-mllvm {name}={vocabulary}" for name in names))
    report = trace_corpus(tmp_path / "corpus", tmp_path / "d", compiler=llvm22.clang, edits=edits)
    assert (report.observations, report.faithful) == (1, 1)
    (row,) = pq.read_table(tmp_path / "d" / "observations").to_pylist()
    for column in ("callee_embedding", "caller_embedding"):
        assert len(row[column]) == SIZE
        assert min(row[column]) > 0
    assert row["caller_embedding"] != row["callee_embedding"]
