"""Faults of routes on their way from the generation engine to the trainer that replays them."""

from __future__ import annotations

from tests.mutation.fault import Fault

_UNIT = "tests/unit"
ENGINE = (f"{_UNIT}/hybrid_engines/generation/test_returned_routes.py",)
SEQUENCE = (f"{_UNIT}/hybrid_engines/generation/test_token_sequence.py",)
LEARNER = (f"{_UNIT}/workers/actor/test_rollout_routes.py",)
MESSAGES = (f"{_UNIT}/data/messages/test_responses_pickled.py",)
RECORDER = (f"{_UNIT}/agents/test_recorder.py",)
LANGUAGE = (f"{_UNIT}/config/checks/test_language_checks.py",)
_SEQUENCE = "rlinf/hybrid_engines/generation/token_sequence.py"
_HF = "rlinf/hybrid_engines/generation/hf.py"
_VLLM = "rlinf/hybrid_engines/generation/vllm.py"
_RESPONSES = "rlinf/data/messages/responses.py"
_USE = "rlinf/workers/actor/expert_use.py"
_CHECKS = "rlinf/config/checks/language_checks.py"

FAULTS: list[Fault] = [
    Fault(
        _SEQUENCE,
        "routes[max(self.num_routes - begin, 0) :]",
        "routes[0:]",
        SEQUENCE,
        "tokens that are computed anew are counted twice",
    ),
    Fault(
        _SEQUENCE,
        "        if begin > self.num_routes:\n",
        "        if False:\n",
        SEQUENCE,
        "routes behind a gap are those of earlier tokens",
    ),
    Fault(
        _HF,
        "[routes[n] for n in sources]",
        "[routes[0] for n in sources]",
        ENGINE,
        "all prompts of a pass have the routes of the first",
    ),
    Fault(
        "rlinf/hybrid_engines/generation/recorded_pass.py",
        "is_token.flatten().cumsum(0).view(is_token.shape) - 1, -1)",
        "torch.arange(is_token.numel()).view(is_token.shape) % sum(lengths), -1)",
        ENGINE,
        "routes of padded prompts lie where those of others do",
    ),
    Fault(
        "rlinf/hybrid_engines/generation/engine_scheduler.py",
        "                sequence.add_routes(routes)\n"
        "            sequence.append(token_id, logprob, full_logprob, self.version)\n",
        "                pass\n            sequence.append(token_id, logprob, full_logprob, self.version)\n"
        "            if routes is not None:\n                sequence.add_routes(routes)\n",
        ENGINE,
        "routes are those of the token before",
    ),
    Fault(
        _VLLM,
        "experts.astype(dtype) + dtype.type(1)",
        "(experts + 1).astype(np.uint8)",
        ENGINE,
        "the numbers of many experts overflow",
    ),
    Fault(
        _VLLM,
        "        if self._returns_routes and request.params.truncates:\n",
        "        if False:\n",
        ENGINE,
        "filters that vLLM's second runner leaves out are accepted",
    ),
    Fault(
        _RESPONSES,
        "        begin += length\n    return torch.from_numpy(laid)\n",
        "        begin += 0 if column is None else length\n    return torch.from_numpy(laid)\n",
        MESSAGES,
        "routes behind a response without any belong to others",
    ),
    Fault(
        _RESPONSES,
        "            routes=_join_routes(parts),\n",
        "            routes=parts[0].routes,\n",
        MESSAGES,
        "of several groups the first alone keeps its routes",
    ),
    Fault(
        "rlinf/agents/recorder.py",
        "        parts.append(routes[count:])\n",
        "        parts = [*parts[:0], routes]\n",
        RECORDER,
        "the last turn overwrites the routes that earlier ones were sampled with",
    ),
    Fault(
        "rlinf/agents/episode_groups.py",
        "            [len(each.prompt_ids) + len(each.token_ids) for each in trajectories],\n",
        "            [len(each.token_ids) for each in trajectories],\n",
        (f"{_UNIT}/agents/test_episode_groups.py",),
        "routes of prompts belong to the responses before",
    ),
    Fault(
        _USE,
        "        if self.from_engine:\n            return [self._steered(batch, None) for batch in batches]\n",
        "",
        LEARNER,
        "recomputed log-probabilities take routes of their own",
    ),
    Fault(
        _USE,
        "[len(prompt) - 1 : -1]",
        "[len(prompt) :]",
        LEARNER,
        "the share counts the last token, which no engine computes",
    ),
    Fault(
        "rlinf/workers/actor/text_learner.py",
        "            routes = self.experts.known(batch)\n",
        "            pass\n",
        LEARNER,
        "without a pass before the update nothing is replayed",
    ),
    Fault(
        "rlinf/workers/actor/text_samples.py",
        "    known = joined.flatten(1).any(1).nonzero().squeeze(1)\n",
        "    known = torch.arange(len(joined))\n",
        LEARNER,
        "a response without routes hides those of a shared prompt",
    ),
    Fault(
        "rlinf/workers/inference/logprob_worker.py",
        "experts=experts",
        "experts=None",
        LEARNER,
        "inference groups take routes of their own",
    ),
    Fault(
        "rlinf/workers/rollout/generation_worker.py",
        'returns_routes=self.cfg.actor.routing_replay == "rollout"',
        'returns_routes=self.cfg.actor.routing_replay != "none"',
        (f"{_UNIT}/workers/rollout/test_generation_worker.py",),
        "engines return routes that nobody reads",
    ),
    Fault(
        _CHECKS,
        "    if obstacle:\n",
        "    if False:\n",
        LANGUAGE,
        "engines that return no routes are accepted",
    ),
    Fault(
        _CHECKS,
        "    if filters and isinstance(cfg.rollout, VLLMGenerationConfig):\n",
        "    if False:\n",
        LANGUAGE,
        "sampling that vLLM does not combine with routes is accepted",
    ),
    Fault(
        _CHECKS,
        'actor.moe_aux_loss_coeff > 0 and actor.routing_replay != "rollout"',
        "actor.moe_aux_loss_coeff > 0",
        LANGUAGE,
        "the balance of an engine's routes needs a pass that records",
    ),
]
