"""The cards of trained policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mlgo_corpus import __version__
from mlgo_corpus.files.markdown import markdown_code, markdown_table
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING
from mlgo_corpus.learn.boosting import Fitted
from mlgo_corpus.learn.examples import Examples
from mlgo_corpus.learn.practice import EVOLUTION, PracticeOptions, Practised
from mlgo_corpus.learn.tuning import Tried
from mlgo_corpus.policies.learned import LearnedPolicy

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
    parts += feature_parts(importance, "By how much the scores change without them:")
    return "\n\n".join(parts) + "\n"


def imitation_card(
    policy: LearnedPolicy,
    examples: Examples,
    fitted: Fitted,
    probability: float,
    corpora: Sequence[str],
    tried: Sequence[Tried],
) -> str:
    """Return the README.md of a policy that imitates.

    Args:
        policy: the policy.
        examples: what it learned from.
        fitted: its model.
        probability: above which a call is inlined.
        corpora: the names of the validation corpora.
        tried: what thresholds made of them.
    """
    rows = [
        (markdown_code(one.name, in_table=True), str(one.modules), str(one.decisions), str(one.flips))
        for one in examples.data
    ]
    parts = [
        f"# {policy.name}",
        f"Decides which calls LLVM inlines, to make code small: {fitted.trees.described()}, fitted by "
        f"{fitted.library} to the best decisions that searches found. Made by mlgo-corpus {__version__}.",
        f"A call is inlined if the model gives it a probability of more than {probability:g}."
        + (f" It decides in {' and '.join(policy.languages)} only." if policy.languages else ""),
        "## Data",
        markdown_table(("corpus", "modules", "decisions", "flips"), rows),
        "## Validation",
    ]
    if tried:
        heading = ("threshold", *(markdown_code(name, in_table=True) for name in corpora))
        body = [(f"{one.probability:g}", *(f"{100 * change:+.2f} %" for change in one.changes)) for one in tried]
        parts += [
            "Text against LLVM's own decisions, the mean of objects, products, and products with gc and folding:",
            markdown_table(heading, body),
        ]
    else:
        parts.append("None: the threshold was not tuned.")
    parts += feature_parts(fitted.importance, "By the share of the loss that their splits save:")
    return "\n\n".join(parts) + "\n"


def feature_parts(importance: Mapping[str, float], told: str) -> tuple[str, str, str]:
    """Return the section of the features that count most; ``told`` is how that was found out."""
    rows = [(markdown_code(name, in_table=True), f"{share:.1%}") for name, share in importance.items()]
    return "## Features", told, markdown_table(("feature", "share"), rows[:_FEATURES])
