"""Weak collections that threads add to while one of them looks at all."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from distarray.weak import alive, values


class Node:
    """What can be referred to weakly."""


def test_threads_may_add_while_one_looks_at_all() -> None:
    kept: list[Node] = []
    by_name: WeakValueDictionary[int, Node] = WeakValueDictionary()
    by_node: WeakKeyDictionary[Node, int] = WeakKeyDictionary()
    nodes: WeakSet[Node] = WeakSet()
    done = threading.Event()

    def add() -> None:
        for n in range(20_000):
            node = Node()
            by_name[n], by_node[node] = node, n
            nodes.add(node)
            if n % 2:
                kept.append(node)
        done.set()

    thread = threading.Thread(target=add)
    thread.start()
    n_looks = 0
    while not done.is_set():
        assert all(type(node) is Node for node in alive(by_name) + alive(nodes))
        assert all(type(n) is int for n in values(by_node))
        n_looks += 1
    thread.join()
    assert n_looks
    assert {*alive(by_name)} == {*alive(nodes)} >= {*kept}
    assert sorted(values(by_node)) == sorted(by_name)
