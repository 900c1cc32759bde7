"""What a redistribution holds and sends on each member: known before it runs (R-7).

In one process tiles are assembled from views: source and target are all there is. On a cluster copies are on their
way, packed at the sender and arrived at the receiver; where source, target and copies do not fit together, the tiles
are made in waves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from distarray.errors import MemoryBudgetError
from distarray.lower.route import Located
from distarray.planner.redistribution import PIECE_LIMIT, Redistribution, named
from distarray.planner.redistribution.transfers import Movement, exchange_of, primary, traffic
from distarray.sharding.boxes import size
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

#: Turns in which members fill their tiles where they make fewer, and bytes below which no turn is worth its messages.
MOST_TURNS = 32
LEAST_ARRIVING = 1 << 20


@dataclass(slots=True)
class Moves:
    """A Moves is a redistribution between the two passes of lowering: its steps, turns and places.

    Parameters
    ----------
    node
        Number of the array that is cut in another way.
    source
        Where its blocks are.
    target
        How it is to be cut.
    plan
        From the synthesizer; None where one exchange is all there is to choose.
    movements
        What each step makes.
    waves
        In how many turns each member makes the tiles of the last step.
    ranks
        To another team: see `Wishes`.
    """

    node: int
    source: Located
    target: Sharding
    plan: Redistribution | None
    movements: list[Movement]
    waves: int = 1
    ranks: tuple[int, ...] | None = None

    @property
    def mode(self) -> str:
        """Return how the steps were found."""
        return "direct" if self.plan is None else self.plan.mode

    def is_last(self, movement: Movement) -> bool:
        """Return whether a step makes the tiles of the target."""
        return movement is self.movements[-1]

    def mesh(self, movement: Movement) -> Mesh:
        """Return the mesh whose places make the tiles of a step."""
        return self.target.mesh if self.is_last(movement) else self.source.sharding.mesh

    def member(self, movement: Movement, device: int) -> int:
        """Return the number of the member that makes the tile of a device in a step."""
        rank = self.mesh(movement).member(device)
        return self.ranks[rank] if self.ranks is not None and self.is_last(movement) else rank


class Need(NamedTuple):
    """A Need is the bytes that a redistribution takes on one member of a cluster.

    Parameters
    ----------
    source, target
        Tiles that it holds before and after.
    between
        Tiles of the steps between.
    sent, received
        Copies for others, and from others, in all steps.
    n_tiles
        Tiles of the target that it makes.
    """

    source: int = 0
    target: int = 0
    between: int = 0
    sent: int = 0
    received: int = 0
    n_tiles: int = 0

    def bytes_in(self, n_waves: int) -> int:
        """Return what it holds at most: the copies of a wave, of the one before that is on its way, and of the next
        one.
        """
        copies = self.sent + self.received
        return self.source + self.target + self.between + min(copies, -(-3 * copies // n_waves))


def footprint(moves: Moves) -> dict[int, Need]:
    """Return what every member of a cluster holds for a redistribution at most, its packs included."""
    totals: dict[str, Counter[int]] = {name: Counter() for name in Need._fields}
    totals["source"] = _source(moves.source)
    for step in _steps(moves):
        totals["sent"] += step.sent
        totals["received"] += step.received
        totals["target" if step.is_last else "between"] += step.made
        if step.is_last:
            totals["n_tiles"] += step.n_tiles
    members = {m for counts in totals.values() for m in counts}
    return {m: Need(**{name: counts[m] for name, counts in totals.items()}) for m in sorted(members)}


def most_held(moves: Moves, *, is_cluster: bool) -> int:
    """Return what a member holds at most, in any order of tasks; in one process nothing is copied on its way."""
    needs = footprint(moves).values()
    return max([n.bytes_in(moves.waves) if is_cluster else n.source + n.target + n.between for n in needs], default=0)


def waves(moves: Moves, limit: int, *, is_strict: bool) -> int:
    """Return in how many turns the tiles are made, or filled, so that what is under way fits beside source and target.

    Parameters
    ----------
    limit
        Bytes of a member.
    is_strict
        Whether more than that is an error. Otherwise the tiles are made one at a time where nothing fits: source and
        target alone may be more than a member has in memory, and lie on its disk.

    Raises
    ------
    MemoryBudgetError
        If no number of waves is enough.
    """
    needs = footprint(moves)
    found, most = turns(needs, limit), _turns(needs)[1]
    if found is None and is_strict:
        smallest = max([n.bytes_in(most) for n in needs.values()])
        raise MemoryBudgetError(
            f"reshard of shape {moves.source.shape}: needs at least {smallest} bytes on a member, in {most} waves, but "
            f"memory is {limit}"
        )
    return most if found is None else found


def turns(needs: Mapping[int, Need], limit: int) -> int | None:
    """Return the fewest turns in which members make, or fill, their tiles within a limit; None where none are
    enough.
    """
    least, most = _turns(needs)
    for n_turns in range(least, most + 1):
        if max([n.bytes_in(n_turns) for n in needs.values()], default=0) <= limit:
            return n_turns
    return None


def _turns(needs: Mapping[int, Need]) -> tuple[int, int]:
    """Return the fewest and the most turns that are tried."""
    n_tiles = max([1, *[n.n_tiles for n in needs.values()]])
    received = max([n.received for n in needs.values()], default=0)
    # What one member sends to another is several packs if it is much: then they may as well come one after the other.
    least = min(n_tiles, -(-received // (PIECE_LIMIT * max(1, len(needs) - 1))) or 1)
    # Where there are more turns than tiles, a tile is filled in parts.
    return least, max(n_tiles, min(MOST_TURNS, received // LEAST_ARRIVING))


class StepReport(NamedTuple):
    """A StepReport is one collective as people see it; bytes are those of the busiest member, but for `moved`.

    Parameters
    ----------
    name
        Of the collective, with its dimensions.
    tile
        Shape of the largest tile that it makes.
    moved
        Bytes sent, in all.
    received, peak
        What a member receives at most, and what it holds: tiles before and after, and copies under way.
    """

    name: str
    tile: tuple[int, ...]
    moved: int
    received: int
    peak: int


def reports(moves: Moves, *, is_cluster: bool) -> tuple[StepReport, ...]:
    """Return the collectives of a redistribution, as they are carried out: slices that the next step takes belong to
    it.
    """
    found = []
    before = _source(moves.source)
    first = 0
    for step in _steps(moves):
        names = ["exchange"] if moves.plan is None else [named(s) for s in moves.plan.steps[first : step.number + 1]]
        first = step.number + 1
        held = before + step.made
        if is_cluster:
            held = held + step.sent + step.received
        found.append(
            StepReport(
                " + ".join(names),
                step.tile,
                sum(step.received.values()),
                max(step.received.values(), default=0),
                max(held.values(), default=0),
            )
        )
        before = step.made
    return tuple(found)


def least_moved(moves: Moves) -> int:
    """Return the bytes that must move between members, whatever the plan: what they need of the target and do not
    hold.
    """
    at, target = moves.source, moves.target
    exchange = moves.movements
    if moves.plan is not None:
        exchange = exchange_of(primary(at.sharding, at.shape), primary(target, at.shape))
    _, received = traffic(exchange[0], partial(moves.member, moves.movements[-1]), at.sharding.mesh.member)
    return received.total() * at.dtype.itemsize


class _StepBytes(NamedTuple):
    """_StepBytes are what one step makes and sends, in bytes by member."""

    number: int
    is_last: bool
    tile: tuple[int, ...]
    made: Counter[int]
    n_tiles: Counter[int]
    sent: Counter[int]
    received: Counter[int]


def _steps(moves: Moves) -> list[_StepBytes]:
    at = moves.source
    itemsize = at.dtype.itemsize
    found = []
    for movement in moves.movements:
        maker = partial(moves.member, movement)
        made: Counter[int] = Counter()
        n_tiles: Counter[int] = Counter()
        for assembly in movement.assemblies:
            member = maker(assembly.device)
            made[member] += movement.made.n_elements(assembly.tile) * itemsize
            n_tiles[member] += 1
        sent, received = traffic(movement, maker, at.sharding.mesh.member)
        tile = tuple([max([b - a for a, b in pairwise(edges)], default=0) for edges in movement.made.boundaries])
        copies = _times(sent, itemsize), _times(received, itemsize)
        found.append(_StepBytes(movement.step, moves.is_last(movement), tile, made, n_tiles, *copies))
    return found


def _times(counts: Counter[int], factor: int) -> Counter[int]:
    return Counter({m: n * factor for m, n in counts.items()})


def _source(at: Located) -> Counter[int]:
    held: Counter[int] = Counter()
    for number, tile in enumerate(at.sharding.tiles()):
        held[at.members[number]] += size(at.box(tile)) * at.dtype.itemsize
    return held
