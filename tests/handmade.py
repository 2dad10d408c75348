"""Corpora made by hand, as small as can be: bitcode that is a header and some bytes, commands, manifests, tables."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

COMMAND = b"-cc1\0-triple\0x86_64-pc-linux-gnu\0-O2\0-main-file-name\0a.c\0"


def bitcode(payload: bytes = b"") -> bytes:
    """Make bitcode: one module block that ends where it begins, and then holds bytes that nobody reads."""
    body = b"\0" * 4 + payload + b"\0" * (-len(payload) % 4)
    enter_module_block = 1 | 8 << 2 | 3 << 10
    return b"BC\xc0\xde" + struct.pack("<II", enter_module_block, len(body) // 4) + body


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def corpus(
    folder: Path,
    modules: Iterable[str] | Mapping[str, bytes | None],
    *,
    commands: Mapping[str, bytes | None] | None = None,
    has_thinlto: bool = False,
    **manifest: Any,
) -> Path:
    """Write a corpus as LLVM's tools do, with no table; of a module that is None there is no bitcode."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = modules if isinstance(modules, Mapping) else {name: bitcode(os.fsencode(name)) for name in modules}
    for name, data in contents.items():
        if data is not None:
            put(folder / f"{name}.bc", data)
        command = (commands or {}).get(name, COMMAND)
        if command is not None:
            put(folder / f"{name}.cmd", command)
        if has_thinlto:
            put(folder / f"{name}.thinlto.bc", bitcode(b"index of " + os.fsencode(name)))
    description = {**manifest, "has_thinlto": has_thinlto, "modules": list(contents)}
    (folder / "corpus_description.json").write_text(json.dumps(description, indent=2))
    return folder


def table(folder: Path, rows: Iterable[Mapping[str, Any]], **said: Any) -> None:
    """Write a ``modules.parquet`` of these rows, by nothing of this package."""
    given = list(rows)
    names = list(dict.fromkeys(name for row in given for name in row)) or ["module", "status"]
    integers = ("bitcode_bytes", "cmd_bytes", "functions")
    fields = [pa.field(name, pa.int64() if name in integers else pa.string()) for name in names]
    made = pa.table({item.name: pa.array([row.get(item.name) for row in given], item.type) for item in fields})
    metadata = {"mlgo_corpus": json.dumps(said)}
    with (folder / "modules.parquet").open("wb") as file:  # its folder's name may be no text
        pq.write_table(made.replace_schema_metadata(metadata), file)


def row(module: str | None, data: bytes = b"", command: bytes | None = COMMAND, **other: Any) -> dict[str, Any]:
    """Give a row that says of a module what an extraction would."""
    return {
        "module": module,
        "source": module,
        "member": None,
        "status": "ok",
        "reason": "ok",
        "detail": "",
        "bitcode_bytes": len(data),
        "bitcode_sha256": sha256(data).hexdigest(),
        "cmd_bytes": None if command is None else len(command),
        "cmd_sha256": None if command is None else sha256(command).hexdigest(),
        "duplicate_of": None,
        "split": None,
        **other,
    }


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "modules.parquet").to_pylist()
    return found


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "corpus_description.json").read_bytes())
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Give what is in a folder but its table, links followed; of folders that are links, what they lead to."""
    found = {}
    for where, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(where, name)
            if name != "modules.parquet":
                found[os.path.relpath(path, folder)] = path.read_bytes()
    return found
