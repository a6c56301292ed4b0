"""What the server of agents costs: CPU time per request, against an HTTP server of the same package that does nothing.

Sixteen connections send chat completions from a process of their own; the engine completes at once. Measured is the CPU
time of the serving process: reading, chat template, encoding, recording and writing. Both servers take turns.

    export OMP_NUM_THREADS=1
    python benchmarks/agents.py > benchmarks/results/agents.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time

from aiohttp import web

from examples.reasoning.make_tiny_model import make_tokenizer
from rlinf.agents.episode_engine import EpisodeEngine, EpisodeLimits
from rlinf.agents.server.agent_server import AgentServer
from rlinf.agents.template import ChatTemplate
from rlinf.data.messages.generation import Completion, GenerationRequest, SamplingParams
from rlinf.data.messages.responses import Prompt

NUM_CONNECTIONS, NUM_NEW_TOKENS = 16, 32
REQUESTS_PER_EPISODE = 32
LIMIT_MILLISECONDS = 2.0
"""CPU time of the server for a request, at most."""
QUESTION = "What is the sum of these two numbers? " * 5
CLIENT = """
import asyncio, sys
import aiohttp
url, key, question, *numbers = sys.argv[1:]
per_connection, connections = map(int, numbers)
body = {"model": "m", "messages": [{"role": "user", "content": question}]}
async def send(http):
    for _ in range(per_connection):
        async with http.post(url, json=body) as response:
            assert response.status == 200, await response.text()
            await response.read()
async def main():
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer " + key}) as http:
        await asyncio.gather(*(send(http) for _ in range(connections)))
asyncio.run(main())
"""


class InstantEngine:
    """Completes at once."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """See ``GenerationClient``."""
        count = NUM_NEW_TOKENS
        return Completion(
            token_ids=(20,) * count, logprobs=(-0.5,) * count, versions=(0,) * count, finish_reason="length"
        )


async def milliseconds(base_url: str, key: str, num_requests: int) -> float:
    """Return the CPU time of this process for a request."""
    arguments = [
        f"{base_url}/chat/completions",
        key,
        QUESTION,
        str(num_requests // NUM_CONNECTIONS),
        str(NUM_CONNECTIONS),
    ]
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, *arguments)
    begin = time.process_time()
    assert await client.wait() == 0
    return (time.process_time() - begin) / num_requests * 1e3


async def of_agent_server(num_requests: int) -> float:
    """Serve episodes one after the other; return the CPU time of a request."""
    template = ChatTemplate(make_tokenizer())
    server = AgentServer(template)
    await server.start()
    found = []
    try:
        for _ in range(num_requests // REQUESTS_PER_EPISODE):
            engine = EpisodeEngine(
                Prompt(index=0, token_ids=(1,), text=""),
                InstantEngine(),
                params=SamplingParams(max_new_tokens=NUM_NEW_TOKENS),
                limits=EpisodeLimits(max_turns=REQUESTS_PER_EPISODE, max_context_tokens=4096),
                seed=0,
                template=template,
            )
            async with server.open(engine) as session:
                found.append(await milliseconds(server.base_url, session.key, REQUESTS_PER_EPISODE))
    finally:
        await server.close()
    return statistics.median(found)


async def of_bare_server(num_requests: int) -> float:
    """Serve what does nothing but read and write JSON; return the CPU time of a request."""

    async def reply(request: web.Request) -> web.Response:
        return web.json_response({"received": await request.json()})

    application = web.Application()
    application.router.add_post("/v1/chat/completions", reply)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return statistics.median([await milliseconds(url, "", REQUESTS_PER_EPISODE) for _ in range(num_requests // 32)])
    finally:
        await runner.cleanup()


def main() -> None:
    """Measure, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=320, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    served, bare = [], []
    for number in range(arguments.rounds):
        order = [(served, of_agent_server), (bare, of_bare_server)]
        for found, measure in order if number % 2 else reversed(order):
            found.append(asyncio.run(measure(arguments.requests)))
    result = {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "server_milliseconds_per_request": served,
        "bare_milliseconds_per_request": bare,
        "median": statistics.median(served),
        "limit": LIMIT_MILLISECONDS,
        "is_met": statistics.median(served) <= LIMIT_MILLISECONDS,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
