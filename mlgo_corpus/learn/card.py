"""The card of a policy that was trained on real compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mlgo_corpus import __version__
from mlgo_corpus.files.markdown import markdown_code, markdown_table
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING
from mlgo_corpus.learn.practice import EVOLUTION, PracticeOptions, Practised

_FEATURES: Final = 15
_DECIDES: Final = {INLINING: "which calls LLVM inlines", EVICTION: "which live ranges give way in registers"}


def practised_card(
    practised: Practised,
    options: PracticeOptions,
    training: Sequence[str],
    watched: Sequence[str],
    importance: Mapping[str, float],
) -> str:
    """Return the policy's README.md.

    Args:
        practised: what came of training.
        options: how it was done.
        training: the names of the corpora.
        watched: the names of the validation corpora; empty if the training corpora were watched.
        importance: the share of each feature.
    """
    policy, best = practised.policy, practised.curve[practised.best]
    inlines = options.task == INLINING
    how = "evolution strategies" if options.algorithm == EVOLUTION else "policy gradients"
    names = [markdown_code(name, in_table=True) for name in (watched or training)]
    points = [
        (str(point.compiles), *(f"{100 * change:+.2f} %" for change in point.changes)) for point in practised.curve
    ]
    data = [
        (markdown_code(one.name, in_table=True), str(one.modules), str(one.decisions), f"{one.inlined:.1%}")
        for one in practised.data
    ]
    important = [(markdown_code(name, in_table=True), f"{share:.1%}") for name, share in importance.items()]
    parts = [
        f"# {policy.name}",
        f"Decides {_DECIDES[options.task]}, to make code small: a {policy.kind} of {policy.model.described()}, trained "
        f"by {how} ({practised.library}) on {practised.compiles} real compiles. Made by mlgo-corpus {__version__}.",
        f"It is the policy after {best.compiles} compiles, the best of the curve. Seed {options.seed}, budget "
        f"{options.budget} compiles a module.",
        "## Data",
        "It began as a clone of these decisions:" if inlines else "It began by evicting the first that may be:",
        markdown_table(("corpus", "modules", "decisions", "inlined" if inlines else "not the first"), data),
        f"Then it compiled {', '.join(markdown_code(name) for name in training)}.",
        "## Curve",
        f"Text of the {practised.measure} of the {'validation' if watched else 'training'} corpora, against LLVM's own "
        "decisions:",
        markdown_table(("compiles", *names), points),
    ]
    if practised.worst:
        grew = [
            (markdown_code(module, in_table=True), str(size), str(before)) for module, size, before in practised.worst
        ]
        parts += ["Modules that grew most:", markdown_table(("module", "text", "by LLVM's decisions"), grew)]
    parts += ["## Features", "By how much the scores change without them:"]
    parts.append(markdown_table(("feature", "share"), important[:_FEATURES]))
    return "\n\n".join(parts) + "\n"
