"""Write the card of a table of functions: a ``README.md`` that describes the folder and how to load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlgo_corpus.dataset.sizes.table import MODULE_MEANINGS, SIZES_FOLDER, Columns, describe_columns
from mlgo_corpus.files.markdown import markdown_code, markdown_text

_FRONT_MATTER = f"""\
---
pretty_name: "Native sizes of functions (IR2Native)"
tags:
- compilers
- llvm
- mlgo
configs:
- config_name: functions
  default: true
  data_files: "{SIZES_FOLDER}/*.parquet"
- config_name: modules
  data_files: "modules.parquet"
---
"""

_TRY = """\
```sql
SELECT split, count(*) AS functions, avg(native_size) AS bytes FROM 'functions/*.parquet'
WHERE native_size IS NOT NULL GROUP BY split;
```

```python
import pandas

frame = pandas.read_parquet("functions").dropna(subset="native_size")
train = frame[frame["split"] == "train"]
```
"""


def sizes_card(about: Mapping[str, Any], columns: Columns, properties: Sequence[str]) -> str:
    """Return the card's text: facts from ``dataset.json``, two queries to try, and every column's meaning."""
    facts = (
        ("compiler", about.get("compiler")),
        ("features taken", about.get("snapshot")),
        ("corpus", about.get("corpus")),
        ("modules", f"{about.get('modules')}, of which {about.get('failed')} failed"),
        ("functions", f"{about.get('functions')}, of which {about.get('labelled')} have a native size"),
        ("split", _split(about)),
        ("made by", f"mlgo-corpus {about.get('version')}"),
    )
    lines = [
        _FRONT_MATTER,
        "# Native sizes of functions\n",
        "One row per function: what it was in LLVM's IR at a point of the pipeline, and how many bytes it has in the "
        "object that the same run made. For supervised models of native size, such as LLVM's IR2Native.\n",
        *(f"- {name}: {markdown_code(str(value))}" for name, value in facts),
        f"\n## Try it\n\nIn this folder, which is not a table itself: `{SIZES_FOLDER}` and `modules.parquet` are.\n",
        _TRY,
        "## Functions\n\n| column | meaning |\n| --- | --- |",
        *(f"| `{name}` | {markdown_text(meaning)} |" for name, meaning in describe_columns(columns, properties)),
        "\n## Modules\n\n`modules.parquet` has one row per module, also of those that failed.\n\n"
        "| column | meaning |\n| --- | --- |",
        *(f"| `{name}` | {markdown_text(meaning)} |" for name, meaning in MODULE_MEANINGS.items()),
    ]
    return "\n".join(lines) + "\n"


def _split(about: Mapping[str, Any]) -> str:
    if about.get("split_by") == "module":
        return "that of the corpus, by module"
    return f"{about.get('fractions')} by the functions' bodies, seed {about.get('seed')}"
