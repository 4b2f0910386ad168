"""Fork and join inside a kernel: the calling thread and helper threads share the chunks of one dispatch.

IREE's task system takes 40 to 130 microseconds per dispatch, because it wakes threads while the caller sleeps. Here the
caller works, and helpers, which spin after the last call, join within a microsecond or are not waited for.

    board.py    the memory through which callers and helpers communicate
    cost.py     decides which work is shared, and when sleeping helpers are woken
    atomics.py  emits loads and stores that are ordered between threads, and system calls
    share.py    emits the caller's side, for a kernel that defines one chunk
    worker.py   emits the helper's side, a separate program
    program.py  adds the address of the board to a program

`qmlir/runtime/team.py` starts and ends the helper threads of a process, and handles forks. A program has a global for
the address of the board, which the runtime sets after loading. While it is 0, the calling thread computes all chunks,
so that a plain runtime can run the same `.vmfb`. Linux on x86-64 only; a kernel for another system has several
workgroups (kernels/chunks.py).
"""
