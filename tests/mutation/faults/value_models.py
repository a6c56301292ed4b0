"""Faults of models that judge recorded frames, of what they learn and of the labels that they write."""

from __future__ import annotations

from tests.mutation.fault import Fault

RECAP = ("tests/unit/algorithms/test_frame_values_recap.py",)
STEAM = ("tests/unit/algorithms/test_frame_values_steam.py",)
MODEL = ("tests/unit/models/vla/test_value_model.py",)
LEARNER = ("tests/unit/workers/actor/test_value_learner.py",)
LABELS = ("tests/unit/data/datasets/lerobot/test_labels.py",)
CHECKS = ("tests/unit/config/checks/test_value_checks.py",)
RUNNER = ("tests/unit/runners/test_value_runner.py",)
SUCCESS = ("tests/unit/algorithms/test_frame_values_success.py",)
CLASSIFIER = ("tests/unit/models/control/test_frame_classifier.py",)

_OBJECTIVE = "rlinf/algorithms/frame_values/frame_objective.py"
_RANKS = "rlinf/algorithms/frame_values/rank_correlation.py"
_RECAP = "rlinf/algorithms/frame_values/recap.py"
_STEAM = "rlinf/algorithms/frame_values/steam.py"
_TABLE = "rlinf/data/episode_table.py"
_FRAMES = "rlinf/data/value_frames.py"
_LABELS = "rlinf/data/datasets/lerobot/labels.py"
_MODEL = "rlinf/models/vla/value_model.py"
_LEARNER = "rlinf/workers/actor/value_learner.py"
_CHECKS = "rlinf/config/checks/value_checks.py"
_RUNNER = "rlinf/runners/value_runner.py"
_SUCCESS = "rlinf/algorithms/frame_values/success.py"
_CLASSIFIER = "rlinf/models/control/frame_classifier.py"

FAULTS: list[Fault] = [
    Fault(_OBJECTIVE, "1.0 - upper", "upper", RECAP, "a value lies nearer to the wrong bin"),
    Fault(_OBJECTIVE, ".clamp(max=num_bins - 2)", ".clamp(max=num_bins - 1)", RECAP, "the last bin has none above it"),
    Fault(
        _OBJECTIVE, "np.quantile(scores, 1.0 - share)", "np.quantile(scores, share)", RECAP, "the share is turned round"
    ),
    Fault(_SUCCESS, "max(float(solved.sum()), 1.0)", "max(float(said.sum()), 1.0)", SUCCESS, "recall is precision"),
    Fault(_RANKS, "- (counts - 1) / 2.0", "", RECAP, "equal values have the highest of their ranks"),
    Fault(_RECAP, "episodes.length[chosen] - 1 - places", "episodes.length[chosen] - places", RECAP, "a step too many"),
    Fault(_RECAP, "gamma**steps * last - cost", "last - cost", RECAP, "failures are not discounted"),
    Fault(_RECAP, "- high) / (high - low)", "- low) / (high - low)", RECAP, "targets lie between 0 and 1"),
    Fault(_RECAP, "* (high - low) + high", "* (high - low)", RECAP, "estimates forget the highest return"),
    Fault(
        _RECAP,
        "places + self.cfg.advantage_lookahead_step < episodes",
        "places + self.cfg.advantage_lookahead_step <= episodes",
        RECAP,
        "what follows an episode is the next one",
    ),
    Fault(_RECAP, "returns - discount * returns[ahead]", "returns", RECAP, "what follows is counted twice"),
    Fault(_RECAP, "values.mean(1)", "values[:, 0]", RECAP, "one of the ensemble decides"),
    Fault(_STEAM, "steps + k - 1)", "steps + k)", STEAM, "a place for the distance 0"),
    Fault(
        _STEAM, "np.clip(np.round(np.abs(distances)), 1, k)", "np.round(np.abs(distances))", STEAM, "far is not outmost"
    ),
    Fault(_STEAM, "np.minimum(self.cfg.k, lengths - 1 - places)", "self.cfg.k", STEAM, "pairs leave the episode"),
    Fault(_STEAM, "distance = 1 + (", "distance = (", STEAM, "a frame is paired with itself"),
    Fault(
        _STEAM, "generator.random(len(places)) < 0.5", "generator.random(len(places)) < 0.0", STEAM, "nothing goes back"
    ),
    Fault(_STEAM, "np.where(backwards, -distance, distance)", "distance", STEAM, "going back looks like going ahead"),
    Fault(_STEAM, "np.maximum(1.0, scale[0] / lengths)", "scale[0] / lengths", STEAM, "long episodes count for less"),
    Fault(_STEAM, "label_smoothing=self.cfg.label_smoothing", "label_smoothing=0.0", STEAM, "labels are not smoothed"),
    Fault(_STEAM, "numbers + 1) / half", "numbers) / half", STEAM, "the first step ahead is none"),
    Fault(_STEAM, "values.min(1)", "values.mean(1)", STEAM, "doubts are averaged away"),
    Fault(_STEAM, "np.where(is_last, 0.0, values.min(1))", "values.min(1)", STEAM, "last frames are judged"),
    Fault(
        _STEAM, "positive[kind] = largest(scores[kind], share)", "positive = largest(scores, share)", STEAM, "one share"
    ),
    Fault(_TABLE, "self.length - (num_frames - 1)", "self.length", RECAP, "pairs begin with the last frame"),
    Fault(_TABLE, "* places / shares", "/ shares", RECAP, "short episodes are sampled as often as long ones"),
    Fault(
        _TABLE,
        "np.where(shares > 0, weights, 0.0)[self.source]",
        "np.ones(len(self))",
        RECAP,
        "weights of data sets have no effect",
    ),
    Fault(
        _FRAMES,
        "np.array([part.any() for part in parts], bool)",
        "np.array([part[0] for part in parts], bool)",
        LEARNER,
        "success is that of the first frame",
    ),
    Fault(_FRAMES, "indices[rows, 0]", "indices[rows, 0] * 0", LEARNER, "every frame has the first sentence"),
    Fault(
        _FRAMES, "records = dataset.episodes[:limit]", "records = dataset.episodes", LEARNER, "all episodes are read"
    ),
    Fault(
        _FRAMES,
        "images[number][key][row] = pixels[at, number]",
        "images[number][key][row] = pixels[at, 0]",
        LEARNER,
        "pairs",
    ),
    Fault(
        _LABELS,
        "order[indices] = np.arange(len(indices))",
        "order[:] = np.arange(len(indices))",
        LABELS,
        "order of rows",
    ),
    Fault(_LABELS, "(counts != 1).any()", "(counts > 1).any()", LABELS, "frames without a label"),
    Fault(
        _LABELS,
        "frames[inside] < lengths[episodes[inside]]",
        "frames[inside] >= 0",
        LABELS,
        "frames of the next episode",
    ),
    Fault(_LABELS, "if nulls:", "if False:", LABELS, "a frame without a label is a bad one"),
    Fault(_LABELS, "if missing:", "if False:", LABELS, "columns are not looked for"),
    Fault(_MODEL, "(output * known.unsqueeze(-1)).sum(1)", "output.sum(1)", MODEL, "padding is part of the sentence"),
    Fault(
        _MODEL,
        "for frame in range(cfg.num_frames) for key in cfg.image_keys]",
        "for frame in range(cfg.num_frames) for key in cfg.image_keys[:1]]",
        MODEL,
        "the model sees one camera",
    ),
    Fault(_MODEL, 'last=f"{member}.head.2."', 'last="none"', MODEL, "predictions begin by chance"),
    Fault(_MODEL, "if _WORDS not in sources and head is not None:", "if False:", MODEL, "tied words are not found"),
    Fault(
        _MODEL, 'return ".head." in name or ".norms." in name', "return False", MODEL, "heads have no rate of their own"
    ),
    Fault(
        _LEARNER, "episodes.select(episodes.succeeded) if data.only_success", "episodes if True", LEARNER, "failures"
    ),
    Fault(_LEARNER, "if cfg.runner.ckpt_path is None:", "if True:", LEARNER, "the scale of a checkpoint is lost"),
    Fault(
        _LEARNER,
        "return found.sum() / size * self.engine.world_size, metrics",
        "return found.mean(), metrics",
        LEARNER,
        "micro-batches count alike, whatever their number",
    ),
    Fault(_LEARNER, "chosen[rows] - first", "chosen[rows]", LEARNER, "episodes are numbered over all data sets"),
    Fault(
        _LEARNER,
        "np.zeros(len(chosen))))[:, :, 1]",
        "np.zeros(len(chosen))))[:, :, 0]",
        LEARNER,
        "losses become labels",
    ),
    Fault(
        _LEARNER,
        "self._cut(self.engine.rank * share, (self.engine.rank + 1) * share)",
        "self._cut(0, share)",
        LEARNER,
        "ranks",
    ),
    Fault(_CHECKS, "2 * loss.k % bins", "loss.k % bins", CHECKS, "half as many distances"),
    Fault(
        _CHECKS,
        "type(loss) is not losses.configs.get(model.loss_type)",
        "False",
        CHECKS,
        "a model of pairs judges frames",
    ),
    Fault(
        _SUCCESS,
        "< self.cfg.success_share",
        "< 0.5",
        SUCCESS,
        "half of the frames are solved, whatever the recipe says",
    ),
    Fault(_SUCCESS, "if not 0 < solved < episodes.num_frames:", "if not 0 < solved:", SUCCESS, "one kind is enough"),
    Fault(_CLASSIFIER, "list(image.shape[1:3]) != self.cfg.image_size", "False", CLASSIFIER, "images of any size"),
    Fault(_CLASSIFIER, 'name.removeprefix("classifier.")', "name", CLASSIFIER, "rewards cannot read the file"),
    Fault(
        _MODEL,
        "*(mean - first for mean in later)",
        "*(first - first for _ in later)",
        MODEL,
        "the later frame is not seen",
    ),
    Fault(_FRAMES, "np.append(False, part[:-1])", "part", LEARNER, "an action is seen before it is done"),
    Fault(_SUCCESS, "episodes.solved == wanted", "episodes.solved >= 0", SUCCESS, "kinds are not told apart"),
    Fault(
        _SUCCESS, "weights[episodes.source[episode[frames]]]", "np.ones(len(frames))", SUCCESS, "weights have no effect"
    ),
    Fault(
        _SUCCESS, "first[chosen] + places", "first[chosen]", SUCCESS, "frames have the label of their episode's first"
    ),
    Fault(
        _TABLE, "np.repeat(rows, self.length)", "np.repeat(rows, self.length)[::-1]", RECAP, "frames of other episodes"
    ),
    Fault(_RUNNER, "self.actor.publish(folder).wait()", "pass", RUNNER, "rewards have nothing to read"),
    Fault(_CHECKS, "if evaluates and not data.val:", "if False:", CHECKS, "an evaluation of nothing"),
    Fault(_RUNNER, "if tag is None:", "if tag is not None:", RUNNER, "labels are not written"),
    Fault(_RUNNER, "if not self.cfg.data.val:", "if False:", RUNNER, "labelling alone evaluates"),
]
