"""The board: the memory through which one caller at a time and the helpers of a process communicate.

The caller takes `LOCK` (a caller that finds it taken works alone), writes the job, opens `GATE` for a new epoch and
works. A helper that sees an open gate of an epoch it has not worked in adds itself to the gate's count, works, and adds
itself to `LEFT`. When no chunk is left, the caller closes the gate and waits for the helpers that entered, and only for
those.

Chunks are claimed by counters, one per participant. Each participant starts with its own range, which it also had in
the last call (its part of the weights is in its core's cache), and then takes chunks from the ranges of the others.
"""

from __future__ import annotations

# A program's function that the runtime calls with the board's address, (i64) -> ().
SETTER = "__qmlir_set_team"
HELPER = "qmlir.helper"  # the attribute of that function that holds the helper's program

# Offsets in bytes; words that different threads write are on separate cache lines.
LOCK = 0  # i64: 1 while a caller has a job on the board
GATE = 64  # i64: epoch << 32 | open << 31 | helpers that entered
LEFT = 128  # i64: helpers that have finished this epoch's job
JOB = 192  # the job: i64 address of its function (board, participant) -> ()
FRAME = 200  # i64 address of the frame that this function reads
ROOM = 208  # i64: helpers that may enter
CALLER_CPU = 216  # i64
PEOPLE = 232  # i64: PARTICIPANTS when the job began, the number of ranges of chunks
MISSED = 224  # i64: nanoseconds of work that sleeping helpers were not woken for
WAKES = 256  # i32 futex: counts the calls that wake sleepers
SLEEPERS = 320  # i64
STOP = 384  # i64: helpers end when it is not 0
PATIENCE = 392  # i64: cycles that a helper spins before it sleeps
PARTICIPANTS = 400  # i64: helpers and the caller; may grow while jobs run
JOINED = 448  # i64: jobs that a helper took part in, for diagnostics and tests
SLEPT = 456  # i64: times that a helper went to sleep
CPU_MASK = 512  # CPUs that the process may use, as sched_setaffinity takes them
CPU_MASK_BYTES = 128
COUNTERS = 1024  # one i64 per participant, each on its own line
LINE = 64
MOST_PARTICIPANTS = 112
SIZE = COUNTERS + MOST_PARTICIPANTS * LINE

OPEN = 1 << 31
ENTERED = 0xFFFF
EPOCH_SHIFT = 32
