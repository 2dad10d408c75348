"""Which members of archives a link takes, with a plain recursion in lld's order as the oracle."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from mlgo_corpus.formats.objects.resolve import InputNames, taken_members
from mlgo_corpus.formats.objects.symbols import LinkedNames

NAMES = st.lists(st.sampled_from("abcdefgh"), max_size=3, unique=True).map(tuple)
OBJECTS = st.builds(LinkedNames, defined=NAMES, needed=NAMES)
INPUTS = st.lists(st.builds(InputNames, st.lists(OBJECTS, max_size=4), st.booleans()), max_size=5)


class Plain:
    """A name is undefined, offered by a member, or defined; reading a file changes that, name by name."""

    def __init__(self, inputs: list[InputNames], needed: tuple[str, ...]) -> None:
        self.state: dict[str, object] = dict.fromkeys(needed, "undefined")
        self.taken: list[list[int]] = [[] for _ in inputs]
        self.inputs = inputs
        for number, one in enumerate(inputs):
            for at, member in enumerate(one.members):
                if one.whole or any(self.state.get(name) == "undefined" for name in member.defined):
                    self.take(number, at)
                for name in () if one.whole else member.defined:
                    self.state.setdefault(name, (number, at))

    def take(self, number: int, at: int) -> None:
        if at in self.taken[number]:
            return
        self.taken[number].append(at)
        member = self.inputs[number].members[at]
        self.state |= dict.fromkeys(member.defined, "defined")
        for name in member.needed:
            place = self.state.setdefault(name, "undefined")
            if isinstance(place, tuple):
                self.take(*place)


# What the first member that is taken needs is offered by a later member, which has not been seen by then.
LATER = [LinkedNames(("g",), ()), LinkedNames(("a",), ("h", "g")), LinkedNames(("a", "g", "h"), ())]


@given(INPUTS, NAMES)
@example([InputNames(LATER, whole=False)], ("a",))
def test_a_link_takes_what_lld_takes(inputs: list[InputNames], needed: tuple[str, ...]) -> None:
    found = taken_members(inputs, needed)
    assert [sorted(one) for one in found] == [sorted(one) for one in Plain(inputs, needed).taken]


def test_a_chain_of_needs_may_be_long() -> None:
    """As long as a link may be: it is followed without recursion."""
    members = [LinkedNames((str(number),), (str(number + 1),)) for number in range(50_000)]
    (taken,) = taken_members([InputNames(members, whole=False)], ["7"])
    assert taken == set(range(7, 50_000))
