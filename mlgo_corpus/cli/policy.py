"""``mlgo-corpus policy``: show learned policies, and make of one what compilers take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mlgo_corpus.cli.console import out, plain, print_json, table, verb
from mlgo_corpus.cli.options import JsonOutput
from mlgo_corpus.files.text import counted
from mlgo_corpus.formats.logs.tasks import needs_plugin, needs_project

if TYPE_CHECKING:
    from mlgo_corpus.policy import PolicyFacts

policy_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show learned policies; make of one the C, the shared object and the header that compilers take.",
)

# The most characters of a value that are shown to a person.
_BRIEF: Final = 200

_Policy = Annotated[
    str, typer.Argument(metavar="POLICY", help="A policy's folder, or the name of one in 'policy list'.")
]


@policy_app.command("list", short_help="List the policies that come with mlgo-corpus.")
@verb
def _list_command(json_output: JsonOutput = False) -> None:
    """List the policies that come with mlgo-corpus.

    Their names stand for them wherever a policy is named, as in 'trace --policy'. A policy of your own is named by its
    folder.
    """
    from mlgo_corpus.policy import list_policies

    found = list_policies()
    if json_output:
        print_json({"policies": [facts.as_json() for facts in found]})
        return
    if not found:
        out().print("no policy comes with this version; name one of your own by its folder")
        return
    rows = table("policy", "task", "kind", "model", left=4)
    for facts in found:
        rows.add_row(plain(facts.name), facts.task, facts.kind, facts.size)
    out().print(rows)


@policy_app.command("show", short_help="Show what a policy is, and what it decides by.")
@verb
def _show_command(policy: _Policy, json_output: JsonOutput = False) -> None:
    """Show what a policy is, what it decides by, and its card. Everything in its folder is checked."""
    from mlgo_corpus.policy import show_policy

    facts = show_policy(policy)
    if json_output:
        print_json(facts.as_json())
    else:
        _show(facts)


def _brief(notes: Mapping[str, object]) -> str:
    """Return what is short enough for a person as JSON; --json has all of it."""
    brief = {name: value for name, value in notes.items() if len(json.dumps(value)) <= _BRIEF}
    more = f" and {len(notes) - len(brief)} more, which --json shows" if len(brief) < len(notes) else ""
    return f"{json.dumps(brief)}{more}" if notes else ""


def _show(facts: PolicyFacts) -> None:
    console = out()
    console.print(f"[bold]{plain(facts.name)}[/bold]: {facts.kind} for {facts.task}: {facts.size}")
    names = [spec.name for spec in facts.features]
    needs = "LLVM's headers, of the clang's version: a plugin tells some of these features"
    needs += "; and the project's corpus, where it is wrapped" if needs_project(names) else ""
    known = (
        ("path", str(facts.path)),
        ("decides", "" if facts.threshold is None else f"to inline, if the score is above {facts.threshold:g}"),
        ("in", " and ".join(facts.languages)),
        ("features", f"{len(names)}: {', '.join(names)}"),
        ("needs", needs if needs_plugin(names) else ""),
        ("training", _brief(facts.training)),
        ("metrics", _brief(facts.metrics)),
        ("licence", facts.licence),
        ("digest", facts.digest),
    )
    for name, value in known:
        if value:
            console.print(f"  {name + ':':9} {plain(value)}")
    for line in facts.card.splitlines():
        console.print(f"  | {plain(line)}".rstrip())


@policy_app.command("compile", short_help="Write a policy as C, a shared object, and LLVM's header.")
@verb
def _compile_command(
    policy: _Policy,
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the folder of an earlier run.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Write a policy as compilers take it.

    The folder gets policy.c and policy.h, C99 without dependencies; policy.so, made of them by the C compiler that is
    there; the header of LLVM's embedded model; and output_spec.json, which makes the folder a development-mode model.
    """
    from mlgo_corpus.policy import compile_policy

    report = compile_policy(policy, output, force=force)
    if json_output:
        print_json(report.as_json())
        return
    files = ", ".join(report.files)
    out().print(f"{plain(str(report.output))}: {counted(len(report.files), 'file')} of {plain(report.name)}: {files}")


@policy_app.command("import", short_help="Make a policy of a model of ml-compiler-opt's.")
@verb
def _import_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The inlining model: model.tflite, or the folder that has it.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="POLICY", help="The folder to write; it names the policy.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace a policy that is there.")] = False,
    json_output: JsonOutput = False,
) -> None:
    """Make a policy of ml-compiler-opt's inlining model, without TensorFlow.

    The model's operators are followed from its inputs to its decision; one that does anything else than quantiles,
    dense layers and the greater of two outputs is refused. It decides as in TFLite, but in double precision.
    """
    from mlgo_corpus.policy import import_policy

    facts = import_policy(model, output, force=force)
    if json_output:
        print_json(facts.as_json())
    else:
        _show(facts)
