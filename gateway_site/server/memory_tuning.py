"""What a serving process does about its memory: less garbage collection, and freed memory given back."""

from __future__ import annotations

import ctypes
import gc

# Objects made and not freed before the youngest are looked at; then tens of those before the older ones.
COLLECTOR_THRESHOLDS = (20_000, 20, 20)
# glibc's numbers for what `mallopt` changes, in malloc.h.
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8
# From this size on, memory is taken from the system and given back as soon as it is freed.
MMAP_THRESHOLD_BYTES = 256 * 1024
# Heaps that threads share. More of them are quicker only where many threads allocate at the same moment.
ARENAS = 2


def tune_garbage_collector() -> None:
    """
    Keep what was loaded at the start out of garbage collection, and collect less often.

    The libraries are some hundred thousand objects that never become garbage; to look through them takes
    tens of milliseconds, in which every request waits. What requests leave behind is little: nearly all of
    it is freed by its count.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def return_freed_memory() -> None:
    """
    Have glibc return the memory of large bodies when they are gone.

    By default its threshold for that rises with each large block that is freed, up to 32 MiB, and from then
    on bodies of megabytes leave holes in the heap that the process keeps. Other C libraries have no such
    switch, and need none.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
        mallopt(M_ARENA_MAX, ARENAS)
