"""Which members of its archives a linker takes: those that define a name which something needs.

A linker takes every object that it is given, and of an archive only what it needs: the first member that defines a
name which is undefined, and not weak, in what it has (System V ABI, "Symbol Table"; the manuals of GNU ld and lld). It
goes from file to file in the order of the command, and follows what a member needs before it goes on, as lld does. GNU
ld looks through an archive once; of a link that succeeds with both, both take the same, but where two members define
one name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mlgo_corpus.formats.objects.symbols import LinkedNames


class InputNames(NamedTuple):
    """The names in a file that is linked.

    Attributes:
        members: the names of each of its objects; a file that is no archive has one.
        whole: whether all of them are taken.
    """

    members: Sequence[LinkedNames]
    whole: bool


def taken_members(inputs: Sequence[InputNames], needed: Sequence[str]) -> tuple[frozenset[int], ...]:
    """Return the numbers of the members that a linker takes of each of its inputs.

    Args:
        inputs: in the order of the command.
        needed: names that are needed from the start, such as ``main``.
    """
    taken: list[set[int]] = [set() for _ in inputs]
    defined: set[str] = set()
    undefined = dict.fromkeys(needed)
    offered: dict[str, tuple[int, int]] = {}

    def take(number: int, at: int) -> Iterator[str]:
        """Take a member, and return the names that it needs."""
        if at in taken[number]:
            return iter(())
        taken[number].add(at)
        names = inputs[number].members[at]
        defined.update(names.defined)
        for name in undefined.keys() & names.defined:
            del undefined[name]
        return iter(names.needed)

    def take_all(number: int, at: int) -> None:
        """Take a member, and those that it needs, each with all that it needs before the next."""
        waiting = [take(number, at)]
        while waiting:
            for name in waiting[-1]:
                if name in defined:
                    continue
                if name in offered:
                    waiting.append(take(*offered[name]))
                    break
                undefined[name] = None
            else:
                waiting.pop()

    for number, one in enumerate(inputs):
        if one.whole:
            for at in range(len(one.members)):
                take_all(number, at)
            continue
        # A linker has not seen the members after one when it follows what this one needs.
        for at, names in enumerate(one.members):
            if not undefined.keys().isdisjoint(names.defined):
                take_all(number, at)
            for name in names.defined:
                offered.setdefault(name, (number, at))
    return tuple(map(frozenset, taken))
