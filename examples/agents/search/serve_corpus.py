"""Serve a search of a corpus, for ``tool_type: retrieval``: BM25 behind Search-R1's protocol.

python examples/agents/search/serve_corpus.py results/tiny_search/corpus.jsonl --port 8000
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
import needed

needed.check_packages(__file__)

from rlinf.agents.retrieval.bm25_index import BM25Index
from rlinf.agents.retrieval.retrieval_server import RetrievalServer
from rlinf.errors import RLinfError


async def serve(index: BM25Index, *, host: str, port: int, top_k: int) -> None:
    """Serve until the process ends."""
    server = RetrievalServer(index, top_k)
    await server.start(host, port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await server.close()


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path, help='JSON lines: {"contents": "title\\ntext"}')
    parser.add_argument("--index", type=Path, help="folder that keeps the index; it is built if it is not there")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--topk", type=int, default=3, help="documents of a query that asks for no number")
    args = parser.parse_args()
    try:
        index = BM25Index.of_corpus(args.corpus, args.index)
        asyncio.run(serve(index, host=args.host, port=args.port, top_k=args.topk))
    except (RLinfError, OSError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
