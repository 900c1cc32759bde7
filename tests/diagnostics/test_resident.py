"""The watch sees memory that was used for a while, and ends."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from distarray.diagnostics import resident
from distarray.diagnostics.resident import watch_peak
from distarray.kernels.buffers import resident_nbytes

pytestmark = pytest.mark.skipif(resident_nbytes() == 0, reason="the system has no /proc")


FREED = """
    block = np.ones(64 << 20, np.uint8)
    threading.Event().wait(10 * resident.INTERVAL)  # the watch looks meanwhile
    del block
"""
IDLE = """
    block = POOL.take((64 << 20,), "u1")
    block[:] = 1
"""
WATCHED = """
import threading
import numpy as np
from distarray.diagnostics import resident
from distarray.kernels.buffers import POOL

POOL.take((64 << 20,), "u1")[:] = 1  # dies at once: its memory is resident, and idle
with resident.watch_peak() as peak:{}
print(peak.most)
"""


@pytest.mark.parametrize("block", [FREED, IDLE], ids=["freed in the block", "idle in the pool before"])
def test_memory_that_is_used_for_a_while_counts(block: str) -> None:
    """In a process of its own: here threads of other tests may free as much meanwhile."""
    found = subprocess.run([sys.executable, "-c", WATCHED.format(block)], capture_output=True, text=True, check=True)
    assert 48 << 20 <= int(found.stdout) <= 128 << 20


def test_the_thread_ends_with_the_block_even_if_it_raises():
    def fail():
        with watch_peak():
            assert any(t.name == "resident-watch" for t in threading.enumerate())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not any(t.name == "resident-watch" for t in threading.enumerate())


def test_workers_that_share_a_process_share_the_watch():
    resident.start("shared")
    resident.start("shared")
    assert resident.stop("shared")[1] >= 0
    assert resident.stop("shared")[1] == 0
    assert not any(t.name == "resident-watch" for t in threading.enumerate())


@pytest.mark.cluster
def test_every_worker_process_is_watched(process_cluster):
    with watch_peak(process_cluster) as peak:
        process_cluster.run(np.ones, 1000)
    assert len(peak.growth) == 3
