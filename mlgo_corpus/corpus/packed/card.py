"""Write the card of a packed corpus: a ``README.md`` that describes the folder and how to load it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlgo_corpus.corpus import modules as moduletable
from mlgo_corpus.corpus.packed import corpus as packed
from mlgo_corpus.corpus.packed.corpus import DATA_FOLDER
from mlgo_corpus.corpus.packed.rows import packed_schema
from mlgo_corpus.files.markdown import documented_columns, markdown_code, markdown_text
from mlgo_corpus.files.names import CERTIFICATE_NAME, FUNCTIONS_NAME, MODULES_NAME, TABLE_NAMES

_FRONT_MATTER = f"""\
---
pretty_name: "Corpus of LLVM bitcode (MLGO)"
tags:
- compilers
- llvm
- mlgo
configs:
- config_name: corpus
  default: true
  data_files: "{DATA_FOLDER}/*.parquet"
"""

_TRY = """\
```python
import datasets

modules = datasets.load_dataset("FOLDER", split="train", streaming=True)  # the folder's name
for module in modules:
    print(module["module"], len(module["bitcode"] or b""), module["command"])
```

```sql
SELECT opt_level, count(*), sum(bitcode_bytes) FROM 'data/*.parquet' GROUP BY opt_level;
```

In this folder, pandas and polars read the table `data`, by `read_parquet("data")`; the folder itself is not a table.

`mlgo-corpus unpack` makes the corpus's folder of it again, byte for byte; `mlgo-corpus trace` and
`mlgo-corpus ir2native` take it as it is.
"""


_CONFIGS = {MODULES_NAME: "objects", FUNCTIONS_NAME: "functions", CERTIFICATE_NAME: "rebuild"}


def packed_card(about: Mapping[str, Any], others: Iterable[str]) -> str:
    """Return the card's text: facts from ``corpus.json``, how to load the corpus, and every column's meaning."""
    tables = [name for name in others if name in TABLE_NAMES]
    configs = "".join(f'- config_name: {_CONFIGS[name]}\n  data_files: "{name}"\n' for name in tables)
    facts = (
        ("modules", about.get("modules")),
        ("of which lack a file", about.get("lacking")),
        ("bytes of bitcode", about.get("bitcode_bytes")),
        ("ThinLTO", "yes" if about.get("has_thinlto") else "no"),
        ("made by", f"mlgo-corpus {about.get('version')}"),
    )
    meanings = documented_columns(moduletable.__doc__ or "") | documented_columns(packed.__doc__ or "")
    schema = packed_schema(stamped=bool(about.get("stamped")))
    lines = [
        f"{_FRONT_MATTER}{configs}---\n",
        "# A corpus of LLVM bitcode\n",
        "One row per module of real builds: its bitcode, and the options of the compiler's own command.\n",
        *(f"- {name}: {markdown_code(str(value))}" for name, value in facts),
        "\n## Try it\n",
        _TRY,
        f"## Modules\n\n`{DATA_FOLDER}/` has one row per module, in the order of `corpus_description.json`.\n",
        "| column | type | meaning |\n| --- | --- | --- |",
        *(
            f"| `{item.name}` | {markdown_text(str(item.type))} | {meanings.get(item.name, '').replace('``', '`')} |"
            for item in schema
        ),
    ]
    if MODULES_NAME in tables:
        lines.append(f"\n`{MODULES_NAME}` has one row per object of the build, also of what was left out.")
    return "\n".join(lines) + "\n"
