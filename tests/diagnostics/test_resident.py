"""The watch sees memory that was used for a while, and ends."""

import gc
import threading

import numpy as np
import pytest

from distarray.diagnostics import resident
from distarray.diagnostics.resident import watch_peak
from distarray.kernels.buffers import POOL, resident_nbytes

pytestmark = pytest.mark.skipif(resident_nbytes() == 0, reason="the system has no /proc")


def test_memory_that_was_freed_in_the_block_is_seen():
    gc.collect()  # what other tests left must not be freed meanwhile
    with watch_peak() as peak:
        block = np.ones(64 << 20, np.uint8)
        looked = threading.Event()
        looked.wait(10 * resident.INTERVAL)  # the watch looks meanwhile
        del block
    assert 48 << 20 <= peak.most <= 128 << 20


def test_memory_that_lay_idle_in_the_pool_counts_when_it_is_used_again():
    POOL.take((64 << 20,), "u1")[:] = 1  # dies at once: its memory is resident, and idle
    with watch_peak() as peak:
        block = POOL.take((64 << 20,), "u1")
        block[:] = 1
    assert 48 << 20 <= peak.most <= 128 << 20
    del block
    POOL.trim()


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
