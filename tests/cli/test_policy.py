"""``mlgo-corpus policy``: what it shows and writes; and LLVM's header, which decides as numpy does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.testing

from mlgo_corpus.cli.main import app
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, find_task
from mlgo_corpus.policies import compiled
from mlgo_corpus.policies.embedded import model_header, model_name
from tests.policies.samples import columns_of, extremes, policy_of, random_model, real_observations, small_policy
from tests.policies.test_pretrained import model as tflite_model

pytestmark = pytest.mark.usefixtures("plain_terminal")


def run(*words: str | Path) -> typer.testing.Result:
    return typer.testing.CliRunner().invoke(app, ["policy", *map(str, words)])


def test_a_policy_is_shown(tmp_path: Path) -> None:
    policy = small_policy(kind="rule")
    policy.save(tmp_path / "mine")
    done = run("show", tmp_path / "mine")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "inlining-1.0: rule for inlining: 2 weights",
        f"  path:     {tmp_path / 'mine'}",
        "  decides:  to inline, if the score is above 0",
        "  features: 2: cost_estimate, callee_users",
        '  training: {"modules": 3}',
        "  licence:  Apache-2.0",
        f"  digest:   {policy.digest}",
        "  | # A card",
    ]
    facts = json.loads(run("show", tmp_path / "mine", "--json").stdout)
    assert (facts["task"], facts["kind"], facts["threshold"], facts["card"]) == (INLINING, "rule", 0.0, "# A card\n")
    assert facts["features"][1] == {"name": "callee_users", "type": "int64_t", "port": 0, "shape": [1]}


def test_a_long_note_is_left_out_of_what_a_person_sees(tmp_path: Path) -> None:
    policy = replace(small_policy(kind="rule"), training={"modules": 3, "seen": "x" * 1000})
    policy.save(tmp_path / "mine")
    assert '  training: {"modules": 3} and 1 more, which --json shows' in run("show", tmp_path / "mine").stdout
    assert json.loads(run("show", tmp_path / "mine", "--json").stdout)["training"]["seen"] == "x" * 1000


def test_what_a_policy_needs_is_shown() -> None:
    assert "  needs:    LLVM's headers" in run("show", "inlining-2.0").stdout
    assert "  needs:" not in run("show", "inlining-1.0").stdout


def test_policies_of_the_package_are_listed() -> None:
    assert run("list").exit_code == 0
    assert isinstance(json.loads(run("list", "--json").stdout)["policies"], list)


def test_text_in_a_policy_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    features = small_policy().features
    policy = policy_of(INLINING, features, small_policy(kind="rule").model, card="a\x1b[2Jb", licence="[red]x\x07")
    policy.save(tmp_path / "mine")
    done = run("show", tmp_path / "mine")
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "licence:  [red]x" in done.stdout


def test_a_policy_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    small_policy().save(tmp_path / "mine")
    (tmp_path / "mine" / "policy.json").write_text("{")
    for words in (("show", tmp_path / "mine"), ("compile", tmp_path / "mine", "--output", tmp_path / "out")):
        done = run(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1
        assert "policy.json: byte 1: not JSON" in done.stderr
    done = run("show", "nothing-1.0")
    assert done.exit_code == 2
    assert "nothing-1.0: no such policy" in done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_policy_is_compiled(tmp_path: Path) -> None:
    small_policy(EVICTION).save(tmp_path / "mine")
    done = run("compile", tmp_path / "mine", "--output", tmp_path / "out")
    names = ["policy.c", "policy.h", "policy.so", "RegAllocEvictModel.h", "output_spec.json"]
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path / 'out'}: 5 files of regalloc-eviction-1.0: {', '.join(names)}\n"
    assert sorted(os.listdir(tmp_path / "out")) == sorted(names)
    (spec,) = json.loads((tmp_path / "out" / "output_spec.json").read_bytes())
    assert spec["logging_name"] == "index_to_evict"
    assert spec["tensor_spec"] == {"name": "index_to_evict", "port": 0, "type": "int64_t", "shape": [1]}
    done = run("compile", tmp_path / "mine", "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert "out: is there already; --force replaces it" in done.stderr
    done = run("compile", tmp_path / "mine", "--output", tmp_path / "out", "--force", "--json")
    assert json.loads(done.stdout)["files"] == names
    assert "-ffp-contract=off" in json.loads(done.stdout)["command"]


def test_without_a_compiler_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_iter_compilers", lambda: iter(()))
    small_policy().save(tmp_path / "mine")
    done = run("compile", tmp_path / "mine", "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stderr == "mlgo-corpus: error: a C compiler is needed, such as cc or clang: none was found\n"
    assert os.listdir(tmp_path) == ["mine"]


def test_a_model_of_ml_compiler_opt_is_imported(tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "model.tflite").write_bytes(tflite_model(6))
    done = run("import", tmp_path / "saved", "--output", tmp_path / "theirs-1.0")
    assert done.exit_code == 0
    assert done.stdout.startswith("theirs-1.0: mlp for inlining: layers of 6, 7, 5, 1\n")
    facts = json.loads(run("show", tmp_path / "theirs-1.0", "--json").stdout)
    assert [spec["name"] for spec in facts["features"]] == ["callee_users", "cost_estimate", "node_count"]
    done = run("import", tmp_path / "saved" / "model.tflite", "--output", tmp_path / "theirs-1.0")
    assert (done.exit_code, "is there already; --force replaces it" in done.stderr) == (2, True)
    done = run("import", tmp_path / "saved", "--output", tmp_path / "bad name")
    said = "mlgo-corpus: error: --output: expected letters, digits and ._+-, found 'bad name'\n"
    assert (done.exit_code, done.stderr) == (2, said)
    (tmp_path / "saved" / "model.tflite").write_bytes(b"none")
    done = run("import", tmp_path / "saved", "--output", tmp_path / "other-1.0")
    assert done.exit_code == 2
    assert "model.tflite: expected a TFLite model, which has TFL3 at byte 4" in done.stderr
    assert run("import", tmp_path / "nothing", "--output", tmp_path / "other-1.0").exit_code == 2
    assert not (tmp_path / "other-1.0").exists()


# LLVM's header, used as its two templates do

HARNESS = """\
#include "@model@.h"
#include <cstdio>
#include <memory>

// Features that the policy does not ask for are skipped, as LLVM does with a buffer of its own.
int main() {
  auto Release = std::make_unique<llvm::@model@>();
  auto EmitC = std::make_unique<llvm::@model@>();
  const char *Names[] = {@names@};
  const unsigned Sizes[] = {@sizes@};
  int Result = Release->LookupResultIndex("fetch_@decision@");
  if (Result < 0 || Release->LookupArgIndex("feed_model_selector") != -1 || Release->LookupResultIndex("x") != -1)
    return 1;
  for (;;) {
    for (unsigned I = 0; I < sizeof Sizes / sizeof *Sizes; ++I) {
      char Bytes[1024];
      if (std::fread(Bytes, Sizes[I], 1, stdin) != 1)
        return 0;
      int Index = Release->LookupArgIndex(std::string("feed_") + Names[I]);
      if (Index < 0)
        return 2;
      std::memcpy(Release->arg_data(Index), Bytes, Sizes[I]);
      std::memcpy(EmitC->reflectionMap.at(Names[I]), Bytes, Sizes[I]);
    }
    Release->Run();
    auto Decision = (*EmitC)();
    if (std::memcmp(Release->result_data(Result), &Decision, sizeof Decision) != 0)
      return 3;
    std::fwrite(&Decision, sizeof Decision, 1, stdout);
  }
}
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("task", "kind"), [(INLINING, "trees"), (EVICTION, "mlp"), (PRIORITY, "rule")])
def test_the_header_decides_as_numpy_does(task: str, kind: str, tmp_path: Path) -> None:
    features, records = real_observations(task)
    records = np.concatenate([records[:500], extremes(features, 100, 2)])
    policy = policy_of(task, features, random_model(kind, len(features), 9, at=columns_of(features, records)))
    model = model_name(task)
    (tmp_path / f"{model}.h").write_text(model_header(policy))
    values: dict[str, Any] = {
        "model": model,
        "names": ", ".join(f'"{spec.name}"' for spec in features),
        "sizes": ", ".join(str(spec.nbytes) for spec in features),
        "decision": find_task(task).decision,
    }
    text = HARNESS
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    (tmp_path / "main.cpp").write_text(text)
    subprocess.run(("c++", "-std=c++17", "-O1", "main.cpp", "-o", "main"), cwd=tmp_path, check=True)
    done = subprocess.run((tmp_path / "main",), input=records.tobytes(), capture_output=True, check=True)
    expected = policy.decide(records)
    np.testing.assert_array_equal(np.frombuffer(done.stdout, expected.dtype), expected)
