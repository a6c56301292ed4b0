"""The message path between processes of a run: serialization, transport, endpoint, mailbox, pending operations.

Nothing here imports Ray, and torch is touched only where the caller has already loaded it, so that the manager and
the channel hosts stay light. A faster transport replaces ``transport.py`` and nothing else.

Six places are harder to read than the plain version. This is what breaks with the plain one:

- ``futures.Promise`` instead of the standard library's ``Future``: Ctrl-C at the wrong instant leaves a future
  locked, and the thread that completes it blocks without end.
- ``futures.Deadlines`` instead of one timer for each wait: every wait with a time-out would wake the event loop, though
  nearly all of them end in time.
- ``local``: the thread that waits for a message reads it itself. With a reader thread alone, every message would pass
  through one more thread.
- ``segment_pool`` instead of new shared memory for each message: fresh pages cost more than the copy into them.
  Counting references across processes is the price of the reuse.
- ``device_transfers``: the message holds a ticket, and the receiver fetches the tensor. If the sender waited for its
  receiver instead, two workers that send to each other at once would deadlock.
- ``heartbeat`` through ZeroMQ's C++ threads instead of a Python thread: a process that computes for minutes without
  releasing Python's lock would be taken for dead.
"""
