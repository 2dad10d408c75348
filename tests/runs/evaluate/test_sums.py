"""What an evaluation's rows add up to, against sums and intervals taken by hand."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pytest

from mlgo_corpus.cli.evaluate import query_of_objects
from mlgo_corpus.runs.evaluate.sums import sum_up
from mlgo_corpus.runs.evaluate.table import EvaluationRow, LinkedRow, write_evaluation_rows


def row(policy: str, module: str, size: int | None, before: int, **more: object) -> EvaluationRow:
    usual: dict[str, object] = dict.fromkeys(EvaluationRow._fields)
    usual |= {"policy": policy, "module": module, "status": "ok", "reason": "ok", "detail": "", "observations": 1}
    usual |= {"trained_share": 0.0, "trained": False, "text_size": size, "baseline_text_size": before}
    return EvaluationRow(**{**usual, **more})  # type: ignore[arg-type]


def test_the_headline_is_of_modules_that_all_policies_have_and_none_has_seen() -> None:
    rows = [
        row("one", "a", 90, 100),
        row("one", "b", 330, 300),
        row("one", "c", 10, 100, trained=True, trained_share=0.9),
        row("one", "d", None, 50, status="failed", reason="timeout"),
        row("one", "e", 40, 40, trained_share=0.25),
        row("two", "a", 100, 100),
        row("two", "b", 200, 300),
        row("two", "c", 100, 100),
        row("two", "d", 50, 50),
        row("two", "e", 44, 40),
    ]
    one, two = sum_up(rows, (), 0)
    assert (one.modules, one.failed, one.objects.modules) == (5, 1, 3)
    assert (one.objects.size, one.objects.baseline) == (460, 440)
    assert one.objects.change == pytest.approx(460 / 440 - 1)
    assert (one.grew, one.worst, one.median) == (1, (("b", 330, 300),), 0.0)
    assert one.trained is not None
    assert (one.trained.modules, one.trained.size, one.trained.baseline, one.most_shared) == (1, 10, 100, 0.25)
    assert (two.failed, two.trained, two.objects.size, two.grew) == (0, None, 344, 1)


def test_modules_without_text_are_unchanged() -> None:
    rows = [row("p", "a", 0, 0), row("p", "b", 0, 0), row("p", "c", 90, 100), row("p", "d", 2, 0)]
    (one,) = sum_up(rows, (), 0)
    assert (one.objects.modules, one.grew, one.median) == (4, 1, 0.0)


def test_who_knows_all_takes_nothing_from_others() -> None:
    rows = [row(policy, name, 90, 100) for policy in ("one", "two") for name in "ab"]
    rows += [row("all", name, 50, 100, trained=True, trained_share=1.0) for name in "ab"]
    rows[0] = row("one", "a", 80, 100, trained=True, trained_share=0.5)
    one, two, everything = sum_up(rows, (), 0)
    assert [(of.objects.modules, of.objects.size, of.median) for of in (one, two)] == [(1, 90, pytest.approx(-0.1))] * 2
    assert (everything.objects.modules, everything.objects.as_json()["change"], everything.median) == (0, None, None)
    assert everything.trained is not None
    assert (everything.trained.modules, everything.trained.size) == (2, 100)


def test_who_fails_everywhere_takes_nothing_from_others() -> None:
    rows = [row("one", name, 90, 100) for name in "ab"]
    rows += [row("none", name, None, 100, status="failed", reason="policy_error") for name in "ab"]
    one, none = sum_up(rows, (), 0)
    assert (one.objects.modules, one.objects.size, one.failed) == (2, 180, 0)
    assert (none.objects.modules, none.median, none.failed) == (0, None, 2)


def test_the_query_sums_up_the_modules_of_the_headline(tmp_path: Path) -> None:
    place = tmp_path / "it's.parquet"
    known = {"trained": True, "trained_share": 1.0}
    lost = {"status": "failed", "reason": "timeout"}
    one = [row("one", "a", 90, 100), row("one", "b", None, 50, **lost), row("one", "c", 8, 9), row("one", "d", 4, 4)]
    two = [row("two", "a", 80, 100), row("two", "b", 40, 50), row("two", "c", 7, 9, **known), row("two", "d", 3, 4)]
    everything = [one._replace(policy="every's", **known) for one in two]
    none = [one._replace(policy="none", text_size=None, trained=False, **lost) for one in two]
    for rows, sums in (
        (two[:2] + two[3:], {"two": 123}),
        (two, {"two": 123}),
        (one + two, {"one": 94, "two": 83}),
        (one + two + everything, {"one": 94, "two": 83}),
        (one + everything, {"one": 102}),
        (one + two + none, {"one": 94, "two": 83, "none": None}),
        (everything, {"every's": 130}),
    ):
        policies = sum_up(rows, (), 0)
        headline = {found.policy: found.objects.size for found in policies if found.objects.size}
        assert headline == ({} if rows is everything else {policy: size for policy, size in sums.items() if size})
        write_evaluation_rows(place, rows, {})
        assert dict(duckdb.sql(query_of_objects(policies, str(place))).fetchall()) == sums


def test_any_seed_gives_an_interval() -> None:
    rows = [row("p", name, size, 100) for name, size in (("a", 90), ("b", 80))]
    (below,), (above,) = (sum_up(rows, (), seed) for seed in (-3, 3))
    assert below.objects.interval == above.objects.interval == (pytest.approx(-0.2), pytest.approx(-0.1))


def test_an_interval_is_that_of_all_draws() -> None:
    sizes, before = np.array([60, 150, 290, 85, 210, 47]), np.array([100, 200, 300, 90, 230, 45])
    every = np.array(list(product(range(6), repeat=6)))  # each as likely as another
    changes = sizes[every].sum(axis=1) / before[every].sum(axis=1) - 1
    rows = [row("p", name, int(size), int(plain)) for name, size, plain in zip("abcdef", sizes, before, strict=True)]
    (found,) = sum_up(rows, (), 0)
    assert found.objects.interval == pytest.approx(np.percentile(changes, (2.5, 97.5)).tolist(), abs=0.01)
    assert sum_up(rows, (), 0) == (found,)


def test_projects_are_drawn_whole() -> None:
    rows = [
        row("p", "x/a", 90, 100, project="x"),
        row("p", "x/b", 110, 100, project="x"),
        row("p", "y/a", 50, 100, project="y"),
    ]
    (found,) = sum_up(rows, (), 0)
    assert found.objects.by_project == (-0.5, 0.0)
    (alone,) = sum_up(rows[:2], (), 0)
    assert alone.objects.by_project is None
    assert alone.objects.interval == pytest.approx((-0.1, 0.1))


def test_products_are_added_up_by_link() -> None:
    def linked(link: str, name: str, size: int | None, before: int, *, trained: bool = False) -> LinkedRow:
        status = "failed" if size is None else "ok"
        return LinkedRow("p", link, name, "program", status, status, "", 2, 2 * trained, trained, size, before)

    rows = [
        linked("linked", "one", 80, 100),
        linked("linked", "two", None, 100),
        linked("linked", "three", 1, 100, trained=True),
        linked("folded", "one", 70, 90),
    ]
    others = [one._replace(policy="q", trained=False, text_size=99, status="ok") for one in rows]
    (other,) = (
        one for one in sum_up([row("p", "a", 1, 1), row("q", "a", 1, 1)], [*rows, *others], 0) if one.policy == "q"
    )
    assert [(one.sizes.modules, one.sizes.size) for one in other.products] == [(1, 99), (1, 99)]  # as of p
    (found,) = sum_up([row("p", "a", 1, 1)], rows, 0)
    as_built, folded = found.products
    assert (as_built.link, as_built.products, as_built.failed) == ("linked", 3, 1)
    assert (as_built.sizes.size, as_built.sizes.baseline) == (80, 100)
    assert as_built.trained is not None
    assert as_built.trained.size == 1
    assert (folded.link, folded.sizes.size, folded.sizes.baseline) == ("folded", 70, 90)
    assert found.larger_product is None

    rows = [linked("linked", "one", 101, 100), linked("folded", "one", 95, 90)]
    larger = [sum_up([row("p", "a", size, 5)], rows, 0)[0].larger_product for size in (4, 5, 6)]
    assert [one and one.link for one in larger] == ["folded", "folded", None]
    # What is left out of the objects may be what makes a product grow.
    seen = [row("q", "b", 1, 1, trained=True, trained_share=1.0), row("q", "a", 5, 5)]
    of_both = [*rows, *(one._replace(policy="q") for one in rows)]
    first, _ = sum_up([row("p", "a", 5, 5), row("p", "b", 9, 5), *seen], of_both, 0)
    assert (first.objects.change, first.products[1].sizes.size, first.larger_product) == (0.0, 95, None)


def test_a_product_of_other_objects_is_in_no_sum() -> None:
    whole = LinkedRow("p", "linked", "one", "program", "ok", "ok", "", 2, 0, False, 80, 100, 0)
    rows = [whole, whole._replace(product="two"), whole._replace(product="two", policy="q", missing=1)]
    rows.append(whole._replace(policy="q", text_size=70))
    found = sum_up([row("p", "a", 1, 1), row("q", "a", 1, 1)], rows, 0)
    sums = [(one.failed, one.partial, one.sizes.modules, one.sizes.size) for each in found for one in each.products]
    assert sums == [(0, 0, 1, 80), (0, 1, 1, 70)]


def test_the_order_in_which_products_were_linked_does_not_matter() -> None:
    rows = [
        LinkedRow("p", "linked", f"{number:02}", "program", "ok", "ok", "", 1, 0, False, 500 + number**2, 1000 + number)
        for number in range(20)
    ]
    found = [sum_up([row("p", "a", 1, 1)], some, 0)[0].products for some in (rows, rows[::-1], rows[2:] + rows[:2])]
    assert found[0] == found[1] == found[2]
