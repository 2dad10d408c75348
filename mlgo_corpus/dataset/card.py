"""Write the card of a dataset: a ``README.md`` that describes the folder, and tells Hugging Face how to load it.

Its front matter is YAML with ``configs`` (https://huggingface.co/docs/hub/datasets-manual-configuration): with it
``datasets.load_dataset(FOLDER)`` returns the observations, ``load_dataset(FOLDER, "modules")`` the table of modules;
of a search's dataset, ``"search"`` and ``"flips"`` are its own tables.

Foreign text, above all names and commands, may contain anything: it is shown as code or as plain text, never as
Markdown or YAML. The card does not depend on the time or the machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlgo_corpus.dataset import flips, logtable, tracetable
from mlgo_corpus.dataset.calls import call_fields, call_meanings
from mlgo_corpus.dataset.folder import SEARCH_TABLES
from mlgo_corpus.dataset.logtable import LogReason, LogRow
from mlgo_corpus.dataset.observations import KEY_MEANINGS, column_names
from mlgo_corpus.dataset.reasons import TRACE_REASONS
from mlgo_corpus.dataset.tracetable import TRACE_KIND, TraceRow
from mlgo_corpus.files.markdown import documented_columns, markdown_code, markdown_fenced, markdown_table, markdown_text
from mlgo_corpus.files.tables import Kind
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.meanings import describe
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, PRIORITY, task_name
from mlgo_corpus.formats.logs.tensors import TensorSpec

_TASKS = {
    INLINING: "inlining",
    EVICTION: "register allocation: eviction",
    PRIORITY: "register allocation: priority",
}

_KEY_TYPES = ("string", "string", "int64")

# The types that the card shows for `Kind`.
_KIND_NAMES = {Kind.INTEGER: "int64", Kind.FLOAT: "double", Kind.BOOLEAN: "bool", Kind.TEXTS: "list of string"}

_FRONT_MATTER = """\
---
pretty_name: "MLGO decisions, {task}"
tags:
- compilers
- llvm
- mlgo
configs:
- config_name: observations
  default: true
  data_files: "observations/*.parquet"
- config_name: contexts
  data_files: "contexts.parquet"
- config_name: modules
  data_files: "modules.parquet"
{searched}---
"""

_SEARCHED = "".join(f'- config_name: {Path(name).stem}\n  data_files: "{name}"\n' for name in SEARCH_TABLES)


def dataset_card(about: Mapping[str, Any], header: LogHeader) -> str:
    """Return the text of a dataset's card.

    Args:
        about: the content of ``dataset.json``. Any key may be missing: ``kind`` (`TRACE_KIND`, else the dataset was
            made from logs), ``modules`` and ``failed`` (their numbers), ``contexts``, ``observations``, ``policy``,
            ``names`` (whether it has the columns of calls), ``compiler`` (its version line), ``argv`` (the command,
            with placeholders for what differs), ``corpus`` (its name), ``corpus_sha256``, ``measure`` and ``epsilon``
            (of the reward), ``tool``, ``version``, ``caveats``, a list of sentences in plain text, and a search's
            ``objective``, ``start`` and ``budget``.
        header: the header of the logs.
    """
    task = task_name(header)
    is_trace = about.get("kind") == TRACE_KIND
    is_search = "objective" in about
    sections = [
        _FRONT_MATTER.format(task=_TASKS.get(task or "", "other"), searched=_SEARCHED if is_search else ""),
        "\n".join(_introduction(about, task, is_trace=is_trace)),
        "## Try it\n\nIn this folder, which is not a table itself: `observations`, `contexts.parquet` and\n"
        "`modules.parquet` are.\n",
        "\n".join(_queries(header, is_trace=is_trace, empty=about.get("observations") == 0)),
        "## Observations\n\nOne row of `observations/` is one decision.\n",
        markdown_table(
            ("column", "type", "meaning"),
            (*_observation_columns(header, task), *(_call_columns() if about.get("names") else ())),
        ),
        "## Contexts\n\n`contexts.parquet` has a row for each time that a context begins, also without observations: "
        "its\n`module` and `context`, and which rows of observations are its own, counted over all files in order: "
        "`count`\nof them from `first_row` on. `line` is null but for contexts written in another way than LLVM's.\n",
        "## Modules\n\n`modules.parquet` has a row for each module, also for those that failed.\n",
        markdown_table(("column", "type", "meaning"), _module_columns(is_trace=is_trace)),
        *(_search(about) if is_search else ()),
        "## Provenance\n",
        "\n".join(_provenance(about)),
    ]
    if caveats := [str(item) for item in about.get("caveats") or ()]:
        sections += ["## Caveats\n", "".join(f"- {markdown_text(item)}\n" for item in caveats)]
    return "\n".join(section.rstrip("\n") + "\n" for section in sections)


def _search(about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sections on a search's own tables."""
    counted = (
        "functions that several objects hold weigh less" if about["objective"] == "linked" else "every byte counts"
    )
    yield "## Search\n"
    yield (
        "The decisions are the best that a search has found. It began with those of the policy "
        f"{markdown_code(str(about.get('start')))},\nand compiled each module at most {_number(about.get('budget'))} "
        f"times; {counted}. `search.parquet` has a row for each module that had something to decide:\n"
    )
    yield markdown_table(("column", "meaning"), _documented(flips.SEARCH_COLUMNS))
    yield "`flips.parquet` has a row for each other decision that was tried; the features at that state follow:\n"
    yield markdown_table(("column", "meaning"), _documented(flips.__doc__ or ""))


def _documented(text: str) -> Iterator[tuple[str, str]]:
    for name, meaning in documented_columns(text).items():
        yield f"`{name}`", meaning.replace("``", "`")


def _introduction(about: Mapping[str, Any], task: str | None, *, is_trace: bool) -> Iterator[str]:
    yield f"# Decisions of a compiler: {_TASKS.get(task or '', 'a task of its own')}\n"
    how = "recorded while LLVM compiled the modules of a corpus" if is_trace else "converted from LLVM's training logs"
    yield f"What an optimisation of LLVM saw and decided (MLGO), one row per decision, {how}.\n"
    facts = [
        ("task", None if task is None else markdown_code(task)),
        ("decision", _names_of_decision(task)),
        ("policy", _code_or_none(about.get("policy"))),
        ("compiler", _code_or_none(about.get("compiler"))),
        ("corpus", _code_or_none(about.get("corpus"))),
        ("modules", _modules(about)),
        ("contexts", _number(about.get("contexts"))),
        ("observations", _number(about.get("observations"))),
    ]
    yield from (f"- {name}: {value}" for name, value in facts if value is not None)


def _names_of_decision(task: str | None) -> str | None:
    names = {INLINING: "inlining_decision", EVICTION: "index_to_evict", PRIORITY: "priority"}
    return None if task is None else f"`{names[task]}`"


def _modules(about: Mapping[str, Any]) -> str | None:
    number, failed = _number(about.get("modules")), about.get("failed")
    return f"{number}, {_number(failed)} of them failed" if number is not None and failed else number


def _queries(header: LogHeader, *, is_trace: bool, empty: bool) -> Iterator[str]:
    name = _decision_column(header)
    mean = "" if name is None else f', avg("{name}") AS mean_decision'
    yield markdown_fenced(
        f"SELECT module, count(*) AS decisions{mean}\n"
        "FROM 'observations/*.parquet' GROUP BY module ORDER BY decisions DESC, module LIMIT 10;",
        "sql",
    )
    if is_trace:
        yield markdown_fenced(
            "SELECT module, observations, baseline_text_size, text_size, reward\n"
            "FROM 'modules.parquet' WHERE reward IS NOT NULL ORDER BY reward DESC LIMIT 10;",
            "sql",
        )
    take = "size()" if name is None else f'["{name}"].agg(["size", "mean"])'
    yield markdown_fenced(
        "import pandas\n\n"
        'frame = pandas.read_parquet("observations")\n'
        f'print(frame.groupby("module", observed=True){"." if name is None else ""}{take})',
        "python",
    )
    # The library refuses tables without rows.
    rows = 'observations = datasets.load_dataset(os.getcwd(), split="train")  # it needs the folder\'s name\n'
    yield markdown_fenced(
        f"import os\n\nimport datasets\n\n{'' if empty else rows}"
        'modules = datasets.load_dataset(os.getcwd(), "modules", split="train")',
        "python",
    )


def _decision_column(header: LogHeader) -> str | None:
    """Return the decision's column if it has numbers and its name needs no escaping in a query; else None."""
    if not header.features:
        return None
    name = column_names(header)[len(header.features) - 1]
    return name if header.features[-1].is_scalar and re.fullmatch(r"\w{1,60}", name, re.ASCII) else None


def _observation_columns(header: LogHeader, task: str | None) -> Iterator[tuple[str, str, str]]:
    keys = zip(KEY_MEANINGS.items(), _KEY_TYPES, strict=True)
    yield from ((f"`{name}`", kind, meaning) for (name, meaning), kind in keys)
    for name, spec in zip(column_names(header), header.columns, strict=True):
        meaning = describe(task, spec.name) or ""
        yield markdown_code(name, in_table=True), _type_of(spec), markdown_text(meaning)


def _call_columns() -> Iterator[tuple[str, str, str]]:
    meanings = call_meanings()
    for item in call_fields():
        yield f"`{item.name}`", "int32" if item.nullable else "string", meanings.get(item.name, "")


def _type_of(spec: TensorSpec) -> str:
    kind = spec.type.removesuffix("_t")
    if spec.is_scalar:
        return kind
    return f"list of {spec.element_count} {kind}: a tensor of {markdown_text(str(list(spec.shape)))}"


def _module_columns(*, is_trace: bool) -> Iterator[tuple[str, str, str]]:
    fields: Sequence[str] = LogRow._fields
    reasons: Sequence[str] = list(LogReason)
    kinds, meanings = logtable.KINDS, documented_columns(logtable.__doc__ or "")
    if is_trace:
        fields, reasons = TraceRow._fields, list(TRACE_REASONS)
        kinds, meanings = tracetable.KINDS, documented_columns(tracetable.__doc__ or "")
    for name in fields:
        meaning = meanings.get(name, "").replace("``", "`")
        if name == "reason":
            meaning = f"why: {', '.join(f'`{reason}`' for reason in reasons)}"
        yield f"`{name}`", _KIND_NAMES.get(kinds.get(name, Kind.TEXT), "string"), meaning


def _provenance(about: Mapping[str, Any]) -> Iterator[str]:
    tool, version = about.get("tool", "mlgo-corpus"), about.get("version")
    facts = [
        ("made by", markdown_code(f"{tool} {version}" if version else str(tool))),
        ("compiler", _code_or_none(about.get("compiler"))),
        ("corpus", _code_or_none(about.get("corpus"))),
        ("SHA-256 of the corpus", _code_or_none(about.get("corpus_sha256"))),
        ("policy", _code_or_none(about.get("policy"))),
        ("size measured", _code_or_none(about.get("measure"))),
        ("epsilon of the reward, in bytes", _code_or_none(about.get("epsilon"))),
    ]
    yield from (f"- {name}: {value}" for name, value in facts if value is not None)
    argv = about.get("argv")
    if argv:
        yield "- the command, of one module:\n"
        yield markdown_fenced(shlex.join(map(str, argv)), "sh")
    yield f"{'' if argv else chr(10)}`dataset.json` says the same for programs, with the header of the logs."


def _code_or_none(value: Any) -> str | None:
    return None if value is None else markdown_code(str(value))


def _number(value: Any) -> str | None:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else None
