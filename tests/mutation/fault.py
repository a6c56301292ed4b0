"""One planted fault: a small edit of the source that the named tests must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """An edit that changes what the code does.

    Attributes:
        file: Path of the source file from the repository's root.
        before: Text that occurs exactly once in the file.
        after: What replaces it; the file still compiles.
        tests: Test files or node ids, the likeliest to fail first.
        what: The fault in a few words, for example "advantages are not detached".
    """

    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    what: str
