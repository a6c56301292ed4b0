"""Faults of the fine-tuning of policies, and of the arm before three cubes."""

from __future__ import annotations

from tests.mutation.fault import Fault

FRAMES = ("tests/unit/data/test_frames.py",)
AUGMENTATION = ("tests/unit/data/test_augmentation.py",)
LEARNER = ("tests/unit/workers/actor/test_frame_learner.py",)
CO_TRAINING = ("tests/unit/workers/actor/test_supervised_frames.py",)
PI = ("tests/unit/models/vla/test_openpi.py",)
GROUNDING = ("tests/unit/models/vla/test_grounding.py",)
PUBLISHED = ("tests/unit/models/vla/test_published_folder.py",)
LANGPICK = ("tests/unit/envs/simulators/test_langpick_env.py", "tests/unit/envs/simulators/test_langpick_single.py")
ARM = ("tests/unit/envs/simulators/test_langpick_single.py", "tests/unit/envs/simulators/test_frankasim_single.py")
LEROBOT = ("tests/unit/data/datasets/lerobot/test_dataset.py",)

FAULTS: list[Fault] = [
    Fault(
        "toolkits/vla/ground_tiny.py",
        "words = torch.cat([tensor[rows, :, last].flatten(1) for tensor in prefix.keys_values[-1]], -1)",
        "words = prefix.output[rows, last]",
        GROUNDING,
        "grounding teaches a layer that the expert does not see",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        "add_value_head=False, freeze=[])",
        "add_value_head=False)",
        GROUNDING,
        "what the recipe of RL keeps learns nothing",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        "return min(right.values()) >= target",
        "return max(right.values()) >= target",
        GROUNDING,
        "questions end while the expert guesses",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        'way = self.cubes[rows, named] - self.obs["states"][rows, :2]',
        "way = self.cubes[rows, named]",
        GROUNDING,
        "the expert is not asked for what it has to compare",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        'self.heads["way"](seen["actions"])',
        'self.heads["way"](seen["actions"].detach())',
        GROUNDING,
        "what actions are read from learns nothing from its question",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        '"actions": places[:, :, :2]}',
        '"actions": places[:, :, 1:3]}',
        GROUNDING,
        "places of a chunk are asked for another's axis",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        "[*image_parts(self.policy), self.seen]",
        "[self.seen]",
        GROUNDING,
        "images learn nothing from their own question",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        "return distance <= target",
        "return distance >= target",
        GROUNDING,
        "images end before they know where things are",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        "likelihood.flatten(3).sum(-1)).logsumexp(1)",
        "likelihood.flatten(3).sum(-1)).mean(1)",
        GROUNDING,
        "every patch has to answer for every cube",
    ),
    Fault(
        "toolkits/vla/ground_tiny.py",
        "norm(dim=-1).argmin(1) == named",
        "norm(dim=-1).argmin(1) >= 0",
        GROUNDING,
        "every answer is right",
    ),
    Fault(
        "rlinf/models/vla/flow_vla.py",
        "start.normal_(generator=generator).mul_(self.cfg.start_std)",
        "start.normal_(generator=generator)",
        PI,
        "training starts from noise, whatever the recipe says",
    ),
    Fault(
        "rlinf/data/frames.py",
        "np.minimum(chosen[:, None] + np.arange(self.horizon), ends[places, None] - 1)",
        "np.minimum(chosen[:, None] + np.arange(self.horizon), dataset.num_frames - 1)",
        FRAMES,
        "a chunk goes on into the next episode",
    ),
    Fault(
        "rlinf/data/frames.py",
        'derive_seed(self.seed, "frames", number)',
        'derive_seed(self.seed, "frames", 0)',
        FRAMES,
        "every batch has the same frames",
    ),
    Fault(
        "rlinf/data/frames.py",
        "size, p=self._shares)",
        "size)",
        FRAMES,
        "a mixture ignores its weights",
    ),
    Fault(
        "rlinf/data/frames.py",
        "np.minimum(ends - frames, self.horizon).sum()",
        "np.full(size, self.horizon).sum()",
        FRAMES,
        "repeated actions are counted in the mean",
    ),
    Fault(
        "rlinf/data/augmentation.py",
        "generator=generator)[rows.start :] * 2.0",
        "generator=generator)[: len(images)] * 2.0",
        FRAMES,
        "every micro-batch has the changes of the first",
    ),
    Fault(
        "rlinf/data/augmentation.py",
        "side = cfg.crop_area**0.5",
        "side = cfg.crop_area",
        AUGMENTATION,
        "the area of a crop is taken for its side",
    ),
    Fault(
        "rlinf/data/datasets/lerobot/dataset.py",
        "while self.num_bytes > self.max_bytes and len(self._tables) > 1:",
        "while False:",
        LEROBOT,
        "all episodes stay in memory",
    ),
    Fault(
        "rlinf/workers/actor/supervised_frames.py",
        "total * weight / num_actions * self.engine.world_size, metrics",
        "total * weight / is_action.sum() * self.engine.world_size, metrics",
        LEARNER,
        "each micro-batch has a mean of its own",
    ),
    Fault(
        "rlinf/workers/actor/supervised_frames.py",
        "{name: tensor[rows] for name, tensor in draws.items()}",
        "{name: tensor[: len(batch.actions)] for name, tensor in draws.items()}",
        LEARNER,
        "every micro-batch has the noise of the first",
    ),
    Fault(
        "rlinf/workers/actor/supervised_frames.py",
        "total * weight / num_actions",
        "total / num_actions",
        CO_TRAINING,
        "frames count as much as rollouts, whatever their weight",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "first = ((step - 1) * num_epochs + epoch) * len(minibatches)",
        "first = epoch * len(minibatches)",
        CO_TRAINING,
        "every step trains on the frames of the first",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "first = ((step - 1) * num_epochs + epoch) * len(minibatches)",
        "first = (step - 1) * num_epochs * len(minibatches)",
        CO_TRAINING,
        "all epochs train on the same frames",
    ),
    Fault(
        "rlinf/workers/actor/policy_learner.py",
        "self.actor.sft_batch_size or self.actor.global_batch_size",
        "self.actor.global_batch_size",
        CO_TRAINING,
        "the frames of an update are as many as its samples",
    ),
    Fault(
        "rlinf/workers/actor/frame_learner.py",
        "range((step - 1) * num_updates, step * num_updates)",
        "range(num_updates)",
        LEARNER,
        "every step repeats the batches of the first",
    ),
    Fault(
        "rlinf/models/vla/flow_vla.py",
        "point = late * noise + (1.0 - late) * padded",
        "point = late * padded + (1.0 - late) * noise",
        PI,
        "time of the supervised loss runs the other way",
    ),
    Fault(
        "rlinf/models/vla/flow_vla.py",
        ".pow(1.0 / _TIME_CONCENTRATION)",
        "",
        PI,
        "times of the supervised loss are uniform",
    ),
    Fault(
        "rlinf/models/vla/flow_vla.py",
        "(1.0 - time).unsqueeze(1))",
        "time.unsqueeze(1))",
        PI,
        "the velocity of a mixture is computed at the time of another",
    ),
    Fault(
        "rlinf/models/vla/flow_vla.py",
        "self.executed(start)[:, 0] = noise",
        "start[:, 0] = torch.randn_like(start[:, 0])",
        PI,
        "what is not executed starts from other noise",
    ),
    Fault(
        "rlinf/models/vla/published_folder.py",
        "main[published.stored_name(name)] = kept",
        "main[name] = kept",
        PUBLISHED,
        "tied weights are written under another name",
    ),
    Fault(
        "rlinf/models/vla/published_folder.py",
        '*("assets/**/*.json", ',
        "*(",
        PUBLISHED,
        "statistics of flows are not written back",
    ),
    Fault(
        "rlinf/envs/simulators/langpick_single.py",
        "cube = self._arm.data.xpos[self._cubes[self._target]]",
        "cube = self._arm.data.xpos[self._cubes[0]]",
        LANGPICK,
        "lifting the red cube is always success",
    ),
    Fault(
        "rlinf/envs/simulators/langpick_single.py",
        "if gaps.min() >= _LEAST_DISTANCE:",
        "if True:",
        LANGPICK,
        "cubes lie on each other",
    ),
    Fault(
        "rlinf/envs/simulators/langpick_single.py",
        "self._generator = generator = np.random.default_rng(seed)",
        "generator = np.random.default_rng(seed)",
        LANGPICK,
        "disturbances go on from the last episode",
    ),
    Fault(
        "rlinf/envs/simulators/frankasim_arm.py",
        "self._target = np.clip(position, *WORKSPACE)",
        "_ = np.clip(position, *WORKSPACE)",
        ARM,
        "the hand goes home from where it was put",
    ),
    Fault(
        "rlinf/envs/simulators/langpick_env.py",
        "holds = is_at & (states[:, 3] < _CLOSED)",
        "holds = is_at",
        LANGPICK,
        "the expert rises with an open gripper",
    ),
    Fault(
        "rlinf/workers/actor/imitation_learner.py",
        "executed = torch.cat([rows.executed, rows.executed.new_zeros(len(rows.executed), missing)], 1)",
        "executed = torch.cat([rows.executed, rows.executed.new_ones(len(rows.executed), missing)], 1)",
        ("tests/unit/workers/actor/test_flow_imitation.py",),
        "a flow imitates what stands behind the chunk",
    ),
    Fault(
        "rlinf/workers/actor/imitation_learner.py",
        "last = rows.actions[:, -1:].expand(-1, missing, *rows.actions.shape[2:])",
        "last = rows.actions[:, :1].expand(-1, missing, *rows.actions.shape[2:])",
        ("tests/unit/workers/actor/test_flow_imitation.py",),
        "chunks are padded with their first action",
    ),
    Fault(
        "rlinf/workers/rollout/experts.py",
        "replace(output, forward_inputs=policy.forward_inputs_of(obs, actions))",
        "output",
        ("tests/unit/workers/actor/test_flow_imitation.py",),
        "an imitated flow reports its chain instead of its actions",
    ),
    Fault(
        "rlinf/config/checks/offline_checks.py",
        'if isinstance(model, FlowVLAConfig) and loss.imitation_loss != "model":',
        'if isinstance(model, FlowVLAConfig) and loss.imitation_loss == "model":',
        ("tests/unit/workers/actor/test_flow_imitation.py",),
        "a flow may be imitated by a likelihood that it has not",
    ),
]
