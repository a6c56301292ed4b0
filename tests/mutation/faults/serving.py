"""Faults of engine servers, of their clients and of the router over them."""

from __future__ import annotations

from tests.mutation.fault import Fault

_FOLDER = "tests/unit/hybrid_engines/serving"
_REMOTE = f"{_FOLDER}/test_remote_engine.py"
_ROUTED = f"{_FOLDER}/test_routed_engine.py"
_RECIPE_SERVER = f"{_FOLDER}/test_recipe_server.py"
_FROM_RECIPE = "tests/unit/hybrid_engines/generation/test_from_recipe.py"
_WIRE = f"{_FOLDER}/test_wire.py"
_SERVER = f"{_FOLDER}/test_engine_server.py"
_CLIENT = f"{_FOLDER}/test_http_client.py"
_LEASE = f"{_FOLDER}/test_weight_lease.py"
_ARGUMENTS = "tests/unit/hybrid_engines/generation/test_serving_arguments.py"
_SHARDS = "tests/unit/hybrid_engines/generation/test_weight_shards.py"
_CHECKS = "tests/unit/config/checks/test_text_checks.py"
_SERVE = "tests/unit/cli/test_serve.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


def _serving(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return _fault(f"hybrid_engines/serving/{file}.py", before, after, what, *tests)


FAULTS: list[Fault] = [
    _serving(
        "engine_server",
        "_SHUTDOWN_SECONDS = 0.1\n",
        "_SHUTDOWN_SECONDS = 0.0\n",
        "a half-sent request keeps the server from ending",
        f"{_SERVER}::test_a_client_that_has_sent_half_a_request_does_not_keep_the_server",
    ),
    # Messages
    _serving("wire", 'prefix_group=str(message["prefix_group"])', 'prefix_group=""', "prefix groups are lost", _WIRE),
    _serving(
        "wire",
        "full_logprobs = None if full is None else tuple(full)",
        "full_logprobs = None",
        "log-probabilities over the vocabulary are lost",
        _WIRE,
    ),
    _serving(
        "wire",
        'checksum_kind=_checksum_kind(message["checksum_kind"])',
        'checksum_kind="parts"',
        "buckets of a device are checked as those of the host",
        _WIRE,
    ),
    _serving("wire", 'left_out=tuple(map(str, message["left_out"]))', "left_out=()", "all updates look whole", _WIRE),
    _serving(
        "wire",
        'return _ERRORS[message["error"]]',
        'return EngineError and _ERRORS["EngineError"]',
        "errors lose their type",
        _WIRE,
    ),
    # The server
    _serving("engine_server", "return not self._token or", "return True or", "any token is let in", _REMOTE),
    _serving(
        "engine_server",
        "            async for _ in request.content.iter_any():\n                pass\n            raise",
        '            raise EngineError("refused")',
        "a refused bucket does not say why",
        _REMOTE,
    ),
    _serving(
        "engine_server",
        "handler_cancellation=True",
        "handler_cancellation=False",
        "requests of a client that hung up go on",
        _REMOTE,
    ),
    _serving(
        "engine_server", "return _failure(error.status,", "return _failure(500,", "a wrong path is a fault", _SERVER
    ),
    _serving("engine_server", "return _failure(400,", "return _failure(500,", "a wrong body is a fault", _SERVER),
    _serving(
        "http_client", "except aiohttp.ClientError", "except KeyError", "a broken connection ends the run", _CLIENT
    ),
    _serving("http_client", "        self.hang_up()\n", "", "connections stay open behind the client", _CLIENT),
    _serving("weight_lease", "and left > 0:", "and left < 0:", "two clients update the weights", _LEASE),
    _serving(
        "weight_lease",
        "            await self._engine.reset_version()\n",
        "            pass\n",
        "the next run's first version is older than the last of the one before",
        _LEASE,
        _REMOTE,
    ),
    _serving(
        "weight_lease",
        "if client and client == self._client:",
        "if client:",
        "any client keeps the lease alive",
        _LEASE,
    ),
    # The client
    _serving(
        "remote_engine",
        'self._die(f"no answer within',
        'self.ailment = str(f"no answer within',
        "a server that hangs is waited for",
        _REMOTE,
    ),
    _serving(
        "remote_engine",
        'return f"{self._name}/{request_id}"',
        "return request_id",
        "two clients' requests are taken for one another",
        _REMOTE,
    ),
    _serving(
        "remote_engine",
        "if number == self._state_number:",
        "if True:",
        "an answer from before an update makes its weights look old",
        _REMOTE,
    ),
    _serving(
        "remote_engine",
        "            self._has_lease = False\n        self.description",
        "            pass\n        self.description",
        "a server that was started anew knows no lease",
        _ROUTED,
    ),
    # The router
    _serving(
        "routed_engine",
        "return load.index(min(load))",
        "return load.index(max(load))",
        "requests go to the most loaded server",
        _ROUTED,
    ),
    _serving(
        "routed_engine",
        "                    self._load[number] -= 1\n",
        "                    pass\n",
        "finished requests count as load",
        _ROUTED,
    ),
    _serving(
        "routed_engine",
        "(self._version < 0 or server.version == self._version)",
        "True",
        "a server with old weights is used",
        _ROUTED,
    ),
    _serving(
        "routed_engine",
        "if await self._servers[number].can_generate():",
        "if True:",
        "requests of a failed engine fail",
        _ROUTED,
    ),
    _serving(
        "routed_engine",
        "                if name in self._aborted:\n",
        "                if False:\n",
        "a request that was aborted starts again",
        _ROUTED,
    ),
    _serving(
        "routed_engine",
        "if len(failures) == len(servers):",
        "if failures:",
        "the death of one server ends an update on all",
        _ROUTED,
    ),
    # Engines over several devices
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        "if shard.stage == shards[0].stage",
        "if True",
        "tied weights of two stages are joined",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        "whole[: own[0].num_rows]",
        "whole",
        "padding is part of the vocabulary",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        "min(size, whole.shape[dim] - begin)",
        "min(size, whole.shape[dim])",
        "a part has the rows that pad it",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        "min(index * size, whole.shape[dim])",
        "0",
        "every worker writes the first part",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        "tensor = whole[sum(sizes[:index]) : sum(sizes[: index + 1])]",
        "tensor = whole[index * sizes[0] : index * sizes[0] + sizes[index]]",
        "key and value heads are taken to be as many as query heads",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        'getattr(module, "num_kv_head_replicas", 1) if index else 1',
        'getattr(module, "num_kv_head_replicas", 1)',
        "query heads count as copied",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        'getattr(module, "num_kv_head_replicas", 1) if index else 1',
        "1",
        "key heads that several workers have are joined as often",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        '"input_dim" if hasattr(module, "input_is_parallel") else "output_dim"',
        '"output_dim"',
        "row-parallel layers are joined in their outputs",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/weight_shards.py",
        "num_workers = sum(module.output_sizes) // len(whole)",
        "num_workers = 1",
        "parts are as long as those of all workers",
        _SHARDS,
    ),
    _fault(
        "hybrid_engines/generation/vllm.py",
        '"pipeline_parallel_size": cfg.pipeline_parallel_size',
        '"pipeline_parallel_size": 1',
        "vLLM has one stage",
        _ARGUMENTS,
    ),
    _fault(
        "hybrid_engines/generation/sglang.py",
        '"pp_size": cfg.pipeline_parallel_size',
        '"pp_size": 1',
        "SGLang has one stage",
        _ARGUMENTS,
    ),
    _fault(
        "hybrid_engines/generation/requests.py",
        "    if request.params.truncates:\n",
        "    if False:\n",
        "drafts change log-probabilities",
        _ARGUMENTS,
    ),
    _fault(
        "config/schema/generation.py",
        "self.tensor_parallel_size * self.pipeline_parallel_size",
        "self.tensor_parallel_size",
        "stages take no devices",
        _CHECKS,
    ),
    _fault(
        "config/checks/language_checks.py",
        "if check.world.rollout not in {None, 1}:",
        "if False:",
        "two ranks update the same servers",
        _CHECKS,
    ),
    _fault(
        "cli/serve.py",
        "if not token and not _is_loopback(args.host):",
        "if False:",
        "anybody can replace the weights of a server",
        _SERVE,
    ),
    # Engines and servers of a recipe
    _serving(
        "recipe_server",
        "for number in (signal.SIGINT, signal.SIGTERM):",
        "for number in (signal.SIGINT,):",
        "a server that is terminated closes nothing",
        _RECIPE_SERVER,
    ),
    _serving(
        "recipe_server",
        "server = EngineServer(engine, description=description, token=token)",
        "server = EngineServer(engine, description=description)",
        "anybody is let in",
        _RECIPE_SERVER,
    ),
    _serving(
        "recipe_server",
        "    finally:\n        await server.close()\n",
        "    finally:\n        pass\n",
        "the engine outlives its server",
        _RECIPE_SERVER,
    ),
    _serving(
        "recipe_server",
        '        "max_context_tokens": cfg.max_context_tokens,\n',
        '        "max_context_tokens": 0,\n',
        "clients do not learn the length of contexts",
        _RECIPE_SERVER,
    ),
    _fault(
        "hybrid_engines/generation/from_recipe.py",
        'seed=derive_seed(cfg.actor.seed, "rollout", rank),',
        'seed=derive_seed(cfg.actor.seed, "rollout"),',
        "all ranks sample the same",
        _FROM_RECIPE,
    ),
    _fault(
        "hybrid_engines/generation/from_recipe.py",
        "precision=cfg.engine_precision,",
        "precision=cfg.actor.model.precision,",
        "the engine's own precision is passed over",
        _FROM_RECIPE,
    ),
]
