"""Fork and join inside a kernel: one dispatch, whose chunks its own thread and helper threads share.

IREE's task system costs 40 to 130 microseconds a dispatch, because it wakes threads and the caller sleeps meanwhile.
Here the caller works, and helpers that spin since the last call join within a microsecond or are not waited for.

    board.py    the memory that callers and helpers meet in
    cost.py     what is worth sharing, and what is worth waking a helper for
    atomics.py  emits loads and stores that other threads see, and system calls
    share.py    emits the caller's side, for a kernel that says what one chunk is
    worker.py   emits the helper's side, a program of its own
    team.py     the helper threads of this process: starting, forking, ending

A program knows its team by a number, the address of the board, which the runtime sets after loading; it starts as 0,
and a program whose number is 0 does all chunks on the calling thread. So a plain runtime runs the same `.vmfb`.
Linux on x86-64 only; a kernel for another system is several workgroups (kernels/chunks.py).
"""
