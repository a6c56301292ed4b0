"""Faults of world models and of the environments that step in them."""

from __future__ import annotations

from tests.mutation.fault import Fault

NETWORK = "rlinf/models/world/frame_unet.py"
ENV = "rlinf/envs/simulators/world_model_env.py"
NETWORKS = ("tests/unit/models/world/test_frame_unet.py",)
ENVS = ("tests/unit/envs/simulators/test_world_model_env.py",)

FAULTS: list[Fault] = [
    Fault(NETWORK, "/ (1 - times).clamp_min(_SMALLEST_REST)", "* 0.0", NETWORKS, "frames are not learned"),
    Fault(
        NETWORK,
        "return total + functional.mse_loss(state, states[:, -1]) if self.state_dim else total",
        "return total",
        NETWORKS,
        "states are not learned",
    ),
    Fault(NETWORK, "states[:, -2],", "states[:, -1],", NETWORKS, "the next state is shown to who should guess it"),
    Fault(
        NETWORK,
        "(1 - t) * noise + t * target,",
        "t * noise + (1 - t) * target,",
        NETWORKS,
        "training begins where imagining ends",
    ),
    Fault(
        NETWORK,
        "frame = frame + (clean - frame) / (num_steps - number)",
        "frame = frame + (clean - frame) / num_steps",
        NETWORKS,
        "later steps of the flow go too short a way",
    ),
    Fault(
        NETWORK,
        "times = torch.full((len(noise),), number / num_steps",
        "times = torch.full((len(noise),), 0.0",
        NETWORKS,
        "every step of the flow is taken for its first",
    ),
    Fault(
        NETWORK,
        "images = torch.cat([images[:, 1:], _pixels(shown.permute(0, 2, 3, 1)[:, None])], 1)",
        "images = images",
        NETWORKS,
        "all frames of a chunk follow the same one",
    ),
    Fault(
        NETWORK,
        "images = torch.cat([images[:, 1:], _pixels(shown.permute(0, 2, 3, 1)[:, None])], 1)",
        "images = torch.cat([images[:, 1:], frame[:, None]], 1)",
        NETWORKS,
        "a chunk goes on from what was not shown",
    ),
    Fault(
        NETWORK,
        "action = (actions[:, step] - self.action_mean) / self.action_std",
        "action = actions[:, step]",
        NETWORKS,
        "actions are not normalised",
    ),
    Fault(
        NETWORK,
        "states.append(state * self.state_std + self.state_mean)",
        "states.append(state)",
        NETWORKS,
        "normalised states are shown",
    ),
    Fault(
        NETWORK,
        "[np.random.default_rng(seed).standard_normal(shape, np.float32) for seed in seeds.tolist()]",
        "[np.random.default_rng(0).standard_normal(shape, np.float32) for seed in seeds.tolist()]",
        NETWORKS,
        "all dreams have the same noise",
    ),
    Fault(
        NETWORK,
        "[np.random.default_rng(seed).standard_normal(shape, np.float32) for seed in seeds.tolist()]",
        "[np.random.default_rng(seed + row).standard_normal(shape, np.float32)"
        " for row, seed in enumerate(seeds.tolist())]",
        NETWORKS,
        "a dream depends on its row",
    ),
    Fault(
        NETWORK,
        'weights = {k: v.contiguous() for k, v in self.state_dict().items() if not k.startswith("classifier.")}',
        'weights = {k: v.contiguous() for k, v in self.named_parameters() if not k.startswith("classifier.")}',
        NETWORKS,
        "statistics are not saved",
    ),
    Fault(
        NETWORK,
        "if (folder / _CLASSIFIER).is_file():",
        "if False:",
        NETWORKS,
        "the classifier of success is forgotten",
    ),
    Fault(
        NETWORK,
        "return torch.cat(scores).view(frames.images.shape[:2])",
        "return torch.cat(scores).view(frames.images.shape[1], -1).T",
        NETWORKS,
        "steps and rows of success are exchanged",
    ),
    Fault(
        ENV,
        "self._recorded.episodes[seed % self._recorded.num_episodes]",
        "self._recorded.episodes[0]",
        ENVS,
        "all episodes begin alike",
    ),
    Fault(
        ENV,
        'last = first if self.cfg.start_frames == "first" else first + derive_seed(seed, "frame") % record.length',
        "last = first",
        ENVS,
        "start_frames has no effect",
    ),
    Fault(ENV, ", last + 1), first)", ", last + 1), 0)", ENVS, "the past of a first frame is another episode's"),
    Fault(
        ENV,
        "kept[rows] = torch.cat([kept[rows, 1:], new[rows, self._column, None]], 1)",
        "kept.copy_(torch.cat([kept[:, 1:], new[:, self._column, None]], 1))",
        ENVS,
        "episodes that have ended go on",
    ),
    Fault(
        ENV,
        "kept[rows] = torch.cat([kept[rows, 1:], new[rows, self._column, None]], 1)",
        "kept[rows] = new[rows, self._column, None].expand_as(kept[rows])",
        ENVS,
        "the past is forgotten",
    ),
    Fault(ENV, "        self._column += 1\n", "", ENVS, "a chunk's first frame is shown again and again"),
    Fault(
        ENV,
        "(scores >= self.cfg.success_threshold)",
        "(scores >= 0.5)",
        ENVS,
        "success_threshold has no effect",
    ),
    Fault(
        ENV,
        "success = solved & ~self._solved",
        "success = solved",
        ENVS,
        "an episode that begins in a solved frame is rewarded for it",
    ),
    Fault(
        ENV,
        "self._solved = np.where(active, solved, self._solved)",
        "pass",
        ENVS,
        "every solved frame after an unsolved start is rewarded",
    ),
    Fault(
        ENV,
        "self._solved[env_ids] = self._is_solved(scores[:, 0])",
        "self._solved[:] = False",
        ENVS,
        "no start counts as solved",
    ),
    Fault(
        ENV,
        '[derive_seed(seed, "dream", int(step)) for step in row]',
        '[derive_seed(seed, "dream", column) for column, step in enumerate(row)]',
        ENVS,
        "the noise depends on how actions are cut into chunks",
    ),
    Fault(
        ENV,
        "steps = request.steps[:, None] + np.arange(request.shape[1])",
        "steps = request.steps[:, None] + 0 * np.arange(request.shape[1])",
        ENVS,
        "all steps of a chunk have the same noise",
    ),
    Fault(ENV, "rewards=success.astype(np.float32),", "rewards=0.0 * success,", ENVS, "success earns nothing"),
    Fault(
        ENV,
        "if feature is None or tuple(feature.shape) != shape:",
        "if feature is None:",
        ENVS,
        "images of another size are taken",
    ),
]
