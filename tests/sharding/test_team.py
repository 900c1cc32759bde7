import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given

from distarray import hooks
from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh
from distarray.sharding.team import Team
from distarray.testing import strategies as dst


@pytest.fixture
def workers(monkeypatch):
    """A cluster of three workers, as the execution layer would resolve it."""

    def resolve(client, size):
        return client or "default client", tuple(f"tcp://w{i}" for i in range(3))[:size]

    monkeypatch.setattr(hooks, "resolve_members", resolve)


def test_rank_is_row_major_over_the_axes():
    """B-13."""
    team = Team(shape=(2, 4), axes=("R", "C"), members="abcdefgh")
    assert team.mesh == Mesh(("R", "C"), (2, 4))
    assert team.size == 8
    assert team.members[team.mesh.place((1, 2))] == "g"


def test_team_prints_its_axes():
    assert repr(Team((2, 4), ("R", "C"), members=range(8))) == "Team(R=2, C=4)"


def test_one_axis_may_be_given_bare():
    assert Team(3, "x", members=range(3)) == Team((3,), ("x",), members=range(3))


@pytest.mark.parametrize(
    ("shape", "axes", "members", "text"),
    [
        ((2, 2), ("R", "R"), range(4), "'R' is named 2 times"),
        ((2, 2), ("R",), range(4), "2 axes, but 1 axis names"),
        ((2, 2), ("R", "C"), range(3), "has 4 members; 3 are too few"),
        ((2, 2), ("R", "C"), range(5), "has 4 members; 5 are too many"),
        ((2,), ("R",), (7, 7), "member 7 is listed twice"),
        ((0,), ("R",), (), "size 0"),
        ((2,), ("%1",), range(2), "wave axis"),
    ],
)
def test_bad_teams_are_value_errors_of_the_constructor(shape, axes, members, text):
    """B-13."""
    with pytest.raises(ValueError, match=text):
        Team(shape, axes, members=members)


@given(dst.teams())
def test_team_survives_pickle_and_copy(team):
    """B-13: immutable, hashable, picklable."""
    again = pickle.loads(pickle.dumps(team))
    assert again == team
    assert hash(again) == hash(team)
    assert (again.id, again.shape, again.axes, again.members) == (team.id, team.shape, team.axes, team.members)
    assert copy.deepcopy(team) is team
    assert copy.copy(team) is team


def test_pickle_of_another_process_is_the_same_team():
    """B-13: the identity does not rest on hashes that differ between processes."""
    code = (
        "import pickle, sys; from distarray.sharding.team import Team;"
        "sys.stdout.buffer.write(pickle.dumps(Team((2,), ('x',), members=('a', 'b'))))"
    )
    data = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    team = Team((2,), ("x",), members=("a", "b"))
    assert pickle.loads(data) == team
    assert hash(pickle.loads(data)) == hash(team)


def test_identity_is_id_shape_and_axes():
    """B-13, B-10: other members, another shape or other names make another team; the client does not."""
    team = Team((2, 2), ("R", "C"), client="one", members="abcd")
    assert team == Team((2, 2), ("R", "C"), client="two", members="abcd")
    assert team.id == Team((4,), ("R",), members="abcd").id
    for other in (
        Team((2, 2), ("R", "C"), members="abce"),
        Team((2, 2), ("R", "C"), members="abdc"),
        Team((2, 2), ("C", "R"), members="abcd"),
        Team((4,), ("R",), members="abcd"),
    ):
        assert team != other
    assert team != "team"


def test_team_is_immutable():
    """B-13."""
    team = Team((2,), ("x",), members=range(2))
    for name in ("shape", "axes", "members", "client", "id"):
        with pytest.raises(AttributeError):
            setattr(team, name, None)


def test_split_gives_the_sub_teams_along_an_axis():
    """B-13, B-48: real teams with their own members."""
    team = Team((2, 3), ("R", "C"), client="client", members="abcdef")
    assert [sub.members for sub in team.split("R")] == [tuple("abc"), tuple("def")]
    assert [sub.members for sub in team.split("C")] == [tuple("ad"), tuple("be"), tuple("cf")]
    assert all(sub.client == "client" for sub in team.split("C"))
    assert [sub.mesh for sub in team.split("C")] == [Mesh(("R",), (2,))] * 3
    assert len(set(team.split("C"))) == 3
    assert team.split("C") == team.split("C")


@given(dst.teams())
def test_sub_teams_partition_the_members(team):
    """B-48."""
    for axis in team.axes:
        subs = team.split(axis)
        assert len(subs) == team.mesh.axis_size(axis)
        assert sorted(m for sub in subs for m in sub.members) == sorted(team.members)


def test_split_of_an_unknown_axis_is_an_error():
    with pytest.raises(ShardingError, match="'Z' does not exist"):
        Team((2,), ("x",), members=range(2)).split("Z")


def test_members_come_from_the_hook(workers):
    team = Team((3,), ("x",))
    assert team.members == ("tcp://w0", "tcp://w1", "tcp://w2")
    assert team.client == "default client"
    assert Team((2,), ("x",), client="mine").client == "mine"


def answers(monkeypatch, *sets):
    """Let the hook give these members, one set a call; how often it was asked."""
    asked = []

    def resolve(client, size):
        there = tuple(sets[min(len(asked), len(sets) - 1)])
        asked.append(size)
        if size is not None and len(there) < size:
            raise ShardingError(f"{size} were asked for, there are {len(there)}")
        return client, there[:size]

    monkeypatch.setattr(hooks, "resolve_members", resolve)
    return asked


@pytest.mark.parametrize(
    ("shape", "there", "wanted", "members"),
    [
        ((4,), "abcd", None, "abcd"),
        ((4,), "abxcd", None, "abcdx"),
        ((4,), "axcd", None, "axcd"),
        ((4,), "acd", None, "adc"),  # there is no rank 3 any more
        ((4,), "xyz", None, "xyz"),
        ((2, 2), "abcdx", None, "abcd"),
        ((2, 2), "xacd", None, "axcd"),
        ((2, 2), "xacdyz", (3, 2), "axcdyz"),
        ((4,), "xacd", 2, "ax"),
    ],
)
def test_a_refreshed_team_keeps_the_ranks_of_who_is_there(monkeypatch, shape, there, wanted, members):
    team = Team(shape, ("r", "c")[: len(shape)], "client", "abcd")
    asked = answers(monkeypatch, there, "")
    fresh = team.refresh(wanted)
    assert fresh.members == tuple(members)
    assert (fresh is team) == (members == "abcd" and wanted is None)
    assert asked == [None], "asked once"


def test_a_worker_that_leaves_while_a_team_is_refreshed_is_an_error_of_the_team(monkeypatch):
    team = Team((2, 2), ("r", "c"), "client", "abcd")
    answers(monkeypatch, "abc")
    with pytest.raises(ShardingError, match="4 were asked for, there are 3"):
        team.refresh()
    answers(monkeypatch, "axc", "axcy")
    assert team.refresh().members == tuple("axcy")
    with pytest.raises(ShardingError):
        team.refresh((2, -1))
    with pytest.raises(ShardingError):
        team.refresh(4)


def test_a_team_that_follows_a_cluster_still_follows_when_it_arrives(monkeypatch):
    monkeypatch.setattr(hooks, "name_client", lambda client: "cluster")
    monkeypatch.setattr(hooks, "find_client", lambda name: "client here")
    monkeypatch.setattr(hooks, "known_following", lambda arrived: arrived)
    team = Team.following("x", "client", "ab", 7)
    for arrived in (pickle.loads(pickle.dumps(team)), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(team))))):
        assert arrived == team
        assert arrived.generation == arrived.settled().generation == 1
        assert arrived.settled().client == "client here"
    monkeypatch.setattr(hooks, "known_following", lambda arrived: team)
    assert arrived.settled() is team
    named = Team((2,), "x", "client", "ab")
    assert pickle.loads(pickle.dumps(named)).settled().generation == 0


def test_more_ranks_than_workers_is_an_error(workers):
    """B-13."""
    with pytest.raises(ValueError, match="has 4 members; 3 are too few"):
        Team((2, 2), ("R", "C"))


def test_the_client_does_not_travel(workers):
    team = Team((3,), ("x",), client=object())
    again = pickle.loads(pickle.dumps(team))
    assert again.client is None
    assert again == team


def test_threads_of_the_process_are_the_default(monkeypatch):
    monkeypatch.setattr(hooks, "resolve_members", None)
    assert Team((2, 3), ("R", "C")).members == (0, 1, 2, 3, 4, 5)
    assert Team((), ()).size == 1
    with pytest.raises(ShardingError, match="no execution layer"):
        Team((2,), ("x",), client=object())
