"""The rollout worker: chooses actions for the environments' observations and collects trajectories from them."""

from __future__ import annotations

import torch

from rlinf.config.registries import inference_backends
from rlinf.config.schema.algorithm import ImitationLossConfig
from rlinf.config.schema.env import EnvConfig
from rlinf.config.schema.root import CollectConfig, EmbodiedConfig
from rlinf.data.messages.action_request import ActionRequest, ActionResponse
from rlinf.data.messages.embodied import ChunkStep, Observation, PolicyOutput
from rlinf.data.messages.routing import sources
from rlinf.envs.scripted import ScriptedPolicy, make_scripted_policy
from rlinf.hybrid_engines.inference_backends import compile_layers
from rlinf.hybrid_engines.weights.adapters import weight_receiver
from rlinf.models.base_policy import BasePolicy, Mode
from rlinf.models.draws import SlotGenerator
from rlinf.models.policy_conformance import check_output
from rlinf.scheduler import Worker
from rlinf.utils.seeding import derive_seed
from rlinf.workers.load_balancer import LoadBalancer
from rlinf.workers.reward.exchange import RewardExchange
from rlinf.workers.rollout.collector import FeedbackReader, TrajectoryCollector
from rlinf.workers.rollout.conventions import check_conventions
from rlinf.workers.rollout.delivery import TrajectoryDelivery
from rlinf.workers.rollout.experts import Teacher, build_teacher, with_actions
from rlinf.workers.rollout.weight_stream import WeightStream
from rlinf.workers.streams import step_tag
from rlinf.workers.values import num_values
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import make_weight_syncer


class MultiStepRolloutWorker(Worker):
    """Runs the policy for its share of the env workers, and hands trajectories to the actor.

    In the decoupled mode it has no share: it serves the requests that it is given whenever it is free.

    Args:
        cfg: The recipe.
        num_env_workers: World size of the env group.
        num_actor_workers: World size of the actor group; 0 where none learns.
        num_reward_workers: World size of the reward group; 0 where the environments' own rewards are learned from.
    """

    def __init__(
        self, cfg: EmbodiedConfig, num_env_workers: int, num_actor_workers: int, num_reward_workers: int = 0
    ) -> None:
        super().__init__()
        self.cfg = cfg
        self.num_env_workers = num_env_workers
        self.env_route = sources(self._rank, num_env_workers, self._world_size)
        if num_actor_workers:
            self.delivery = TrajectoryDelivery(self, cfg, num_actor_workers)
        self.rewards = RewardExchange(self, cfg, num_reward_workers) if num_reward_workers else None
        self.balancer: LoadBalancer | None = None
        self.is_marked_idle = False
        self.model: BasePolicy
        self.reader: FeedbackReader
        self.scripted: ScriptedPolicy | None = None
        self.weights: WeightStream
        self.teacher: Teacher | None = None

    def init_worker(self, balancer: LoadBalancer | None = None) -> None:
        """Build the inference copy of the policy; its weights come from the actor.

        Args:
            balancer: Where this rank gets its requests in the decoupled mode.
        """
        self.balancer = balancer
        rollout, model, algorithm = self.cfg.rollout, self.cfg.actor.model, self.cfg.algorithm
        self.scripted = _scripted_policy(self.cfg)
        if isinstance(self.cfg, CollectConfig):
            return
        check_conventions(self.cfg)
        self.model = inference_backends.get(rollout.rollout_backend)(
            model,
            num_values=num_values(self.cfg),
            precision=rollout.model.precision or model.precision,
            device=self.device,
        )
        compile_layers(self.model, rollout)
        self.reader = FeedbackReader(
            self.model,
            bootstrap_always=algorithm.bootstrap_type == "always",
            records_next=algorithm.loss.needs_next_inputs,
        )
        self.teacher = build_teacher(self.cfg, self.model, torch.device(self.device))
        inbox = WeightInbox(make_weight_syncer(self, self.cfg.weight_syncer), self.cfg.actor.group_name)
        self.weights = WeightStream(weight_receiver(self.model, model), inbox)

    @Worker.timer("sync_weights")
    def sync_model_from_actor(self, *, version: int) -> None:
        """Receive weights from the actor and load them, all or nothing.

        Args:
            version: The version to have, at least.
        """
        self.weights.wait_for(version)

    @Worker.timer("generate")
    def generate(self, *, step: int) -> None:
        """Act for the training environments through one rollout and send the trajectories to the actor.

        Args:
            step: Step of the run; names the random streams, and decides with ``algorithm.staleness_threshold`` which
                weights are needed to begin.
        """
        self._await_weights(step)
        if self.cfg.rollout.enable_offload:
            self.model.to(self.device)
        if self.balancer is not None:
            self._serve(self.balancer)
        else:
            self._generate_bound(step)
        if self.cfg.rollout.enable_offload:
            self.model.to("cpu")

    @Worker.timer("evaluate")
    def evaluate(self) -> None:
        """Act for the evaluation environments: greedily, or as ``data_collection.policy`` says."""
        if self.balancer is not None:
            self._serve(self.balancer)
            return
        assert self.cfg.env.eval is not None
        for epoch in range(self.cfg.env.eval.rollout_epoch):
            self._rollout_epoch("eval", self._slot_generator("eval", "collection", epoch))

    def _serve(self, balancer: LoadBalancer) -> None:
        """Answer requests until the end of a rollout; some may be of the next one already."""
        while True:
            if not self.is_marked_idle:
                balancer.mark_idle(self._rank)
                self.is_marked_idle = True
            with self.worker_timer("wait_for_envs"):
                request = balancer.next_request(self._rank)
            if request is None:
                return
            self.is_marked_idle = False
            tag = step_tag(request.mode, request.stage)
            self.send(self._respond(request), self.cfg.env.group_name, request.env_rank, tag=tag)

    def _respond(self, request: ActionRequest) -> ActionResponse:
        """Return the response to one env rank's request; its random numbers depend on the request, not on the rank."""
        chunk, actions, output, feedback, last_values = request.chunk, None, None, None, None
        place = (request.env_rank, request.stage, request.step, request.epoch, request.row)
        if request.mode == "train":
            self._await_weights(request.step)
            if self.teacher is not None:
                self.teacher.begin(request.step)
        with self.worker_timer("infer"):
            if request.mode == "train" and request.row > 0:
                feedback = self.reader.read(chunk, acted_on=request.acted_on, values=request.wants_values)
            if not request.is_last:
                purpose = "actions" if request.mode == "train" else "collection"
                actions, output = self._act(chunk.obs, request.mode, self._generator(purpose, *place))
                actions, output = actions.cpu(), None if output is None else output.to("cpu")
            elif request.wants_values:
                last_values = self.model.predict_values(chunk.obs).cpu()
        return ActionResponse(
            actions, output, self.weights.version, None if feedback is None else feedback.to("cpu"), last_values
        )

    def _await_weights(self, step: int) -> None:
        """Take the newest weights that are there, or wait for the oldest that may act in a step's rollout."""
        with self.worker_timer("wait_for_weights"):
            self.weights.wait_for(step - 1 - (self.cfg.algorithm.staleness_threshold or 0))

    def _generator(self, purpose: str, *place: int) -> torch.Generator:
        """Return the random generator of a purpose in a place: ranks and numbers that name it."""
        return torch.Generator(self.device).manual_seed(self._seed(purpose, *place))

    def _slot_generator(self, mode: Mode, purpose: str, *place: int) -> SlotGenerator:
        """Return that of this rank's environments, whose streams are those of all of them on a single rank."""
        cfg: EnvConfig | None = self.cfg.env.train if mode == "train" else self.cfg.env.eval
        assert cfg is not None
        num_slots = cfg.total_num_envs // (self.cfg.rollout.pipeline_stage_num if mode == "train" else 1)
        return SlotGenerator(
            self.device,
            seed=self._seed(purpose, self._rank, *place),
            shared_seed=self._seed(purpose, 0, *place),
            slots=torch.arange(num_slots).chunk(self._world_size)[self._rank],
            num_slots=num_slots,
        )

    def _seed(self, purpose: str, first: int, *others: int) -> int:
        return derive_seed(self.cfg.actor.seed, "rollout", first, purpose, *others)

    def _generate_bound(self, step: int) -> None:
        if self.teacher is not None:
            self.teacher.begin(step)
        chunks = self._num_chunk_steps("train")
        for epoch in range(self.cfg.env.train.rollout_epoch):
            collectors = self._rollout_epoch("train", self._slot_generator("train", "actions", step, epoch))
            for stage, collector in enumerate(collectors):
                rewards = None if self.rewards is None else self.rewards.collect(stage, chunks)
                self.delivery.send(collector, env_ids=self._env_ids(stage), epoch=epoch, rewards=rewards)

    def _rollout_epoch(self, mode: Mode, generator: torch.Generator) -> list[TrajectoryCollector]:
        num_stages = self.cfg.rollout.pipeline_stage_num if mode == "train" else 1
        collectors = [TrajectoryCollector() for _ in range(num_stages)]
        sent: dict[int, torch.Tensor] = {}
        acted_on: dict[int, Observation] = {}
        for row in range(self._num_chunk_steps(mode) + 1):
            last = row == self._num_chunk_steps(mode)
            for stage, collector in enumerate(collectors):
                with self.worker_timer("wait_for_envs"):
                    message = self._receive(mode, stage)
                if mode == "train" and row > 0:
                    feedback = self.reader.read(message, acted_on=acted_on[stage], values=collector.has_values)
                    collector.add_result(message, feedback)
                    if self.rewards is not None:
                        self.rewards.submit(stage, message, message.executed_actions(sent[stage]))
                if stage == 0 and mode == "train":
                    # Between two chunks of all stages; only where the actor trains at the same time is there any.
                    self.weights.take_arrived()
                if last:
                    if mode == "train" and collector.has_values:
                        collector.add_last_values(self.model.predict_values(message.obs))
                    continue
                with self.worker_timer("infer"):
                    actions, output = self._act(message.obs, mode, generator)
                sent[stage], acted_on[stage] = actions.cpu(), message.obs
                self._send_actions(mode, stage, sent[stage])
                if output is not None:
                    # The environments act meanwhile: what was recorded is copied to the host.
                    collector.add_decision(output, version=self.weights.version)
        return collectors

    def _act(
        self, obs: Observation, mode: Mode, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, PolicyOutput | None]:
        """Return actions, and in training what the model reports on them; in real time, all that are planned."""
        if self.cfg.rollout.enable_cuda_graph:
            # What graphs wrote for the chunk before may be written over.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if mode == "train":
            actions, output = self.model.predict_action_batch(obs, mode="train", generator=generator)
            check_output(actions, output, num_action_chunks=self.cfg.actor.model.num_action_chunks)
            if self.teacher is None:
                imitates = isinstance(self.cfg.algorithm.loss, ImitationLossConfig)
                return actions, with_actions(self.model, obs, actions, output) if imitates else output
            return self.teacher.mix_actions(obs, actions, output, generator)
        if self.scripted is not None:
            return self.scripted(obs), None
        if self.cfg.actor.model.inference_delay is not None:
            return self.model.plan_action_batch(obs, generator=generator), None
        collection = None if self.cfg.env.eval is None else self.cfg.env.eval.data_collection
        explores = collection is not None and collection.enabled and collection.policy == "sample"
        actions, _ = self.model.predict_action_batch(obs, mode="train" if explores else "eval", generator=generator)
        return actions, None

    def _receive(self, mode: Mode, stage: int) -> ChunkStep:
        env = self.cfg.env.group_name
        return ChunkStep.concat([self.recv(env, peer, tag=step_tag(mode, stage)) for peer in self.env_route.peers])

    def _send_actions(self, mode: Mode, stage: int, actions: torch.Tensor) -> None:
        parts = actions.chunk(len(self.env_route.peers))
        for peer, part in zip(self.env_route.peers, parts, strict=True):
            self.send(part, self.cfg.env.group_name, peer, tag=step_tag(mode, stage))

    def _env_ids(self, stage: int) -> torch.Tensor:
        """Return the global indices of the training environments whose rows this rank receives for a stage."""
        num_stages = self.cfg.rollout.pipeline_stage_num
        per_stage = self.cfg.env.train.total_num_envs // (self.num_env_workers * num_stages)
        first = [(peer * num_stages + stage) * per_stage for peer in self.env_route.peers]
        ids = torch.cat([torch.arange(start, start + per_stage) for start in first])
        if self.env_route.parts == 1:
            return ids
        return ids.chunk(self.env_route.parts)[self._rank % self.env_route.parts]

    def _num_chunk_steps(self, mode: Mode) -> int:
        cfg: EnvConfig | None = self.cfg.env.train if mode == "train" else self.cfg.env.eval
        assert cfg is not None
        return cfg.max_steps_per_rollout_epoch // self.cfg.actions_per_chunk(mode)


def _scripted_policy(cfg: EmbodiedConfig) -> ScriptedPolicy | None:
    collection = None if cfg.env.eval is None else cfg.env.eval.data_collection
    if collection is None or not collection.is_scripted:
        return None
    assert cfg.env.eval is not None
    return make_scripted_policy(collection.policy, cfg.env.eval)
