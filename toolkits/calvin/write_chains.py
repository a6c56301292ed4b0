"""Sample CALVIN's 1,000 chains and write the table that the environment reads.

``python toolkits/calvin/write_chains.py`` takes minutes, and writes the same file every time.
"""

from __future__ import annotations

from rlinf.envs.guests.calvin_chains import sample_chains, write_chains

if __name__ == "__main__":
    write_chains(sample_chains())
