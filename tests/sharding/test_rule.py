import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.errors import ShardingError
from distarray.sharding.rule import ShardingRule, halo_of, loop_of
from distarray.testing import strategies as dst

parse = ShardingRule.parse


@given(dst.rules())
def test_printing_and_parsing_a_rule_are_inverse(rule):
    assert parse(str(rule)) == rule
    assert hash(parse(str(rule))) == hash(rule)
    assert eval(repr(rule), {"ShardingRule": ShardingRule}) == rule


@given(dst.rules())
def test_every_loop_is_parallel_reducing_or_whole(rule):
    assert sorted([*rule.parallel, *rule.reducing, *rule.whole]) == sorted(rule.loops)


@given(dst.rules())
def test_a_loop_that_a_result_lacks_reduces_unless_whole(rule):
    for loop in rule.loops:
        reduces = any(loop in map(loop_of, t) for t in rule.operands) and not all(loop in t for t in rule.results)
        assert (loop in rule.reducing or loop in rule.whole) == (reduces or loop in rule.whole)


@given(dst.rules())
def test_rule_survives_pickle_as_the_same_value(rule):
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert hash(again) == hash(rule)


@pytest.mark.parametrize(
    "text",
    [
        "... i k, ... k j -> ... i j",
        "i j -> i",
        "i j -> i j | j: whole",
        "i j -> i | j: max",
        "..., ... -> ...",
        "i j -> i 1",
        "i 1, j -> i j",
        "i j ->",
        "-> i j",
        "() -> i",
        "i, -> i",
        "i j -> i k, k j | i: whole, j: whole, k: new(3)",
        "... -> | ...: argmax",
        "a_row b2 -> b2 | a_row: moments",
        "i-1+2 j, k+0 -> i j k",
    ],
)
def test_rules_of_the_grammar_print_as_written(text):
    assert str(parse(text)) == text


def test_parts_of_matmul():
    rule = parse("... i k, ... k j -> ... i j")
    assert rule.operands == (("...", "i", "k"), ("...", "k", "j"))
    assert rule.results == (("...", "i", "j"),)
    assert rule.loops == ("...", "i", "k", "j")
    assert rule.parallel == ("...", "i", "j")
    assert dict(rule.reducing) == {"k": "sum"}
    assert rule.whole == ()
    assert dict(rule.kinds) == {"k": "sum"}


def test_whole_loops_do_not_reduce():
    rule = parse("i j -> i | j: whole")
    assert rule.whole == ("j",)
    assert dict(rule.reducing) == {}


def test_results_may_reduce_different_loops():
    rule = parse("i j -> i, j | j: max")
    assert dict(rule.reducing) == {"i": "sum", "j": "max"}


def test_saying_sum_is_saying_nothing():
    assert parse("i j -> i | j: sum") == parse("i   j->i")
    assert str(parse("i j -> i | j: sum")) == "i j -> i"


def test_loops_of_results_only_are_parallel():
    rule = parse("i -> i k n | n: new( 4 )")
    assert rule.parallel == ("i", "k", "n")
    assert dict(rule.new) == {"n": 4}
    assert rule.kinds["n"] == "new(4)"


def test_sides_may_be_empty():
    assert parse("-> i").operands == ()
    assert parse("() -> i").operands == ((),)
    assert parse(", -> i").operands == ((), ())
    assert parse("i ->").results == ((),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i j", "is no rule"),
        ("i -> j -> k", "is no rule"),
        ("i -> i | i: whole | i: whole", "is no rule"),
        ("i -> i |", "is no clause"),
        ("i -> i | i", "is no clause"),
        ("i -> i | i: whole,", "is no clause"),
        ("i j -> i | j: max, j: min", "has two clauses, 'max' and 'min'"),
        ("i j -> i | j: mean", "'mean' is no kind"),
        ("i j -> i | k: max", "a loop that is in no operand and no result"),
        ("i j -> i j | j: max", "loop 'j' does not reduce"),
        ("i -> i j | j: max", "loop 'j' does not reduce"),
        ("i -> i | i: new(3)", "the extent of 'i' comes from the operands"),
        ("i -> i j | j: new(x)", "'new(x)' is no kind"),
        ("i i -> i", "names loop 'i' twice"),
        ("i -> i i", "names loop 'i' twice"),
        ("i ... -> i", "must come first"),
        ("i 2 -> i", "'2' is no loop"),
        ("i-j -> i", "'i-j' is no loop"),
        ("... _0 -> _0", "give the others another name"),
        ("(i) -> i", "'(i)' is no loop"),
        ("i -> i+1", "'i+1' is no loop"),
        ("i-+1 -> i", "'i-+1' is no loop"),
        ("i+1 j -> j", "loop 'i' has no extent"),
        ("i+1 i -> i", "names loop 'i' twice"),
    ],
)
def test_bad_rules_say_what_is_wrong(text, message):
    with pytest.raises(ShardingError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


def test_a_rule_has_a_result():
    with pytest.raises(ShardingError, match="needs a result"):
        ShardingRule((("i",),), ())


# -- bind -------------------------------------------------------------------------------------------------------


def test_extents_come_from_the_operands():
    assert parse("i k, k j -> i j").bind([(2, 3), (3, 4)]) == {"i": 2, "k": 3, "j": 4}
    assert parse("i 1, j -> i j").bind([(2, 1), (4,)]) == {"i": 2, "j": 4}
    assert parse("i j -> i k | k: new(3)").bind([(2, 5)]) == {"i": 2, "j": 5, "k": 3}
    assert parse("i j -> i k").bind([(2, 5)], [(2, 9)]) == {"i": 2, "j": 5, "k": 9}
    assert parse("-> i j").bind([], [(0, 1)]) == {"i": 0, "j": 1}
    assert parse("i j ->").bind([(2, 5)], [()]) == {"i": 2, "j": 5}


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.booleans(), min_size=3, max_size=3)), min_size=1, max_size=4))
def test_leading_axes_broadcast_as_in_numpy(operands):
    full = (4, 1, 3)
    shapes = [tuple(1 if one else n for n, one in zip(full, ones, strict=True))[3 - ndim :] for ndim, ones in operands]
    rule = parse(", ".join(["..."] * len(shapes)) + " -> ...")
    expected = np.broadcast_shapes(*shapes)
    assert rule.bind(shapes) == {f"_{i}": n for i, n in enumerate(expected)}
    assert rule.bind(shapes, [expected]) == rule.bind(shapes)
    resolved = rule.resolve(shapes)
    assert not resolved.has_ellipsis
    assert resolved.bind(shapes) == rule.bind(shapes)
    for term, shape in zip(resolved.operands, shapes, strict=True):
        # An axis is cut with the result's axis, or broadcasts.
        aligned = resolved.results[0][len(expected) - len(shape) :]
        assert all(loop == name or (loop, n) == ("1", 1) for loop, name, n in zip(term, aligned, shape, strict=True))


def test_an_axis_may_have_a_halo():
    rule = parse("i-1+2 j, k -> i j | k: whole")
    for n, m in ((7, 5), (4, 5), (7, 1)):
        assert rule.bind([(n, 2), (3,)], [(m, 2)]) == {"i": m, "j": 2, "k": 3}
    with pytest.raises(ShardingError, match="axis 0 of extent 3 is too short for its loop"):
        rule.bind([(3, 2), (3,)], [(5, 2)])
    assert (halo_of("i-1+2"), halo_of("i+2"), halo_of("i-1"), halo_of("i")) == ((1, 2), (0, 2), (1, 0), (0, 0))


def test_leading_axes_of_matmul():
    rule = parse("... i k, ... k j -> ... i j")
    assert rule.bind([(5, 1, 2, 3), (7, 3, 4)]) == {"_0": 5, "_1": 7, "i": 2, "k": 3, "j": 4}
    assert str(rule.resolve([(5, 1, 2, 3), (7, 3, 4)])) == "_0 1 i k, _1 k j -> _0 _1 i j"
    assert str(rule.resolve([(2, 3), (3, 4)])) == "i k, k j -> i j"


def test_leading_axes_keep_their_kind():
    rule = parse("... i -> i | ...: max")
    assert str(rule.resolve([(2, 3, 4)])) == "_0 _1 i -> i | _0: max, _1: max"
    assert dict(rule.resolve([(2, 3, 4)]).reducing) == {"_0": "max", "_1": "max"}


def test_leading_axes_of_results_alone_come_from_the_result():
    assert parse("i -> ... i").bind([(3,)], [(5, 6, 3)]) == {"i": 3, "_0": 5, "_1": 6}


def test_a_rule_without_leading_axes_resolves_to_itself():
    rule = parse("i j -> i")
    assert rule.resolve([(2, 3)]) is rule


@pytest.mark.parametrize(
    ("text", "operands", "results", "message"),
    [
        ("i k, k j -> i j", [(2, 3), (4, 5)], None, "axis 0 of operand 1 has extent 4, but loop 'k' has 3"),
        ("i k, k j -> i j", [(2, 3)], None, "has 2 operands, but 1 shapes are given"),
        ("i j -> i", [(2, 3, 4)], None, "operand 0 has 3 axes (2, 3, 4), but its term 'i j' has 2"),
        ("i 1 -> i", [(2, 3)], None, "axis 1 of operand 0 has extent 3, but loop '1' has 1"),
        ("i -> i", [(2,)], [(3,)], "axis 0 of result 0 has extent 3, but loop 'i' has 2"),
        ("i -> i", [(2,)], [(2, 1)], "result 0 has 2 axes"),
        ("i -> i", [(2,)], [(2,), (2,)], "has 1 results, but 2 shapes"),
        ("i -> i 1", [(2,)], [(2, 2)], "axis 1 of result 0 has extent 2, but loop '1' has 1"),
        ("i -> i j", [(2,)], None, "loop 'j' stands in results only"),
        ("i -> i j | j: new(3)", [(2,)], [(2, 4)], "axis 1 of result 0 has extent 4, but loop 'j' has 3"),
        ("..., ... -> ...", [(2,), (3,)], None, "(2,), (3,) do not broadcast: 2 and 3"),
        ("... i j -> ... i", [(2,)], None, "needs at least 2"),
        ("i -> ... i", [(2,)], None, "'...' stands in results only"),
        ("i -> ... i", [(2,)], [()], "result 0 has 0 axes"),
        ("..., ... -> ...", [(2, 1), (3,)], [(2, 4)], "axis 1 of result 0 has extent 4"),
    ],
)
def test_shapes_that_do_not_bind_are_value_errors(text, operands, results, message):
    with pytest.raises(ValueError) as caught:
        parse(text).bind(operands, results)
    assert message in str(caught.value)
