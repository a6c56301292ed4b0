"""Faults of data sets on the disk, and of the tools for saved replays."""

from __future__ import annotations

from tests.mutation.fault import Fault

_LEROBOT = "tests/unit/data/datasets/lerobot/"
_LEROBOT_DATASET, _LEROBOT_WRITER = f"{_LEROBOT}test_dataset.py", f"{_LEROBOT}test_writer.py"
_LEROBOT_COLUMNS = f"{_LEROBOT}test_dataset_columns.py"
_LEROBOT_STATS, _LEROBOT_FORMAT = f"{_LEROBOT}test_stats.py", f"{_LEROBOT}test_format.py"
_TESTS = {
    "datasets/episodes.py": ("tests/unit/data/datasets/test_episodes_chunked.py",),
    "datasets/minari.py": ("tests/unit/data/datasets/test_minari.py",),
    "datasets/d4rl.py": ("tests/unit/data/datasets/test_d4rl.py",),
    "replay/tools.py": ("tests/unit/data/replay/test_tools.py",),
    "datasets/lerobot/dataset.py": (_LEROBOT_DATASET, _LEROBOT_COLUMNS),
    "frames.py": (_LEROBOT_COLUMNS,),
    "datasets/lerobot/stats.py": (_LEROBOT_STATS,),
    "datasets/lerobot/writer.py": (_LEROBOT_WRITER, _LEROBOT_DATASET),
    "datasets/lerobot/images.py": (_LEROBOT_DATASET,),
    "datasets/lerobot/format.py": (_LEROBOT_FORMAT,),
    "datasets/lerobot/episodes.py": ("tests/unit/data/datasets/lerobot/test_episodes_lerobot.py",),
}


def _fault(file: str, before: str, after: str, what: str) -> Fault:
    return Fault(f"rlinf/data/{file}", before, after, _TESTS[file], what)


FAULTS: list[Fault] = [
    # Transitions of recorded episodes.
    _fault(
        "datasets/episodes.py",
        "        actions[~executed] = 0\n",
        "",
        "a short chunk repeats the episode's last action",
    ),
    _fault(
        "datasets/episodes.py",
        "terminated=(ends == length) & episode.terminated,",
        "terminated=(ends == length),",
        "an episode that was cut off counts as terminated",
    ),
    _fault(
        "datasets/episodes.py",
        "next_inputs = report(_rows(episode.obs, ends), actions)",
        "next_inputs = report(_rows(episode.obs, (starts + 1)), actions)",
        "what follows a chunk is what follows its first action",
    ),
    _fault(
        "datasets/episodes.py",
        "powers = reward_coef * gamma ** torch.arange(",
        "powers = gamma ** torch.arange(",
        "recorded rewards are not scaled",
    ),
    _fault(
        "datasets/episodes.py",
        "* executed * powers",
        "* powers",
        "the last reward is added up behind the end",
    ),
    _fault(
        "datasets/minari.py",
        'key=lambda name: int(name.removeprefix("episode_"))',
        "key=str",
        "episodes are sorted as text",
    ),
    _fault(
        "datasets/minari.py",
        'terminated=bool(np.any(group["terminations"][()])),',
        'terminated=bool(np.any(group["truncations"][()])),',
        "truncations are read as terminations",
    ),
    _fault(
        "datasets/minari.py",
        "[np.asarray(node[key][()]) for key in cfg.state_keys]",
        "[np.asarray(node[key][()]) for key in sorted(cfg.state_keys)]",
        "parts of a state are sorted by name",
    ),
    _fault(
        "datasets/minari.py",
        '            steps += len(arrays["rewards"])\n',
        '            steps += len(arrays["observations"])\n',
        "the last observation counts as a step",
    ),
    _fault(
        "datasets/d4rl.py",
        'ends = ends | columns["timeouts"].astype(bool)',
        'ends = columns["timeouts"].astype(bool)',
        "terminated episodes go on in the next ones",
    ),
    _fault(
        "datasets/d4rl.py",
        "        stop -= 1\n",
        "        states = np.concatenate([states, states[-1:]])\n",
        "an episode that was cut off ends in the state before its end",
    ),
    _fault(
        "datasets/d4rl.py",
        'columns["next_observations"][stop - 1 : stop]',
        'columns["next_observations"][start : start + 1]',
        "episodes end in their second state",
    ),
    # Saved replays.
    _fault(
        "replay/tools.py",
        "reward_mean=total / max(count, 1),",
        "reward_mean=total / max(len(parts), 1),",
        "the mean reward is that per part",
    ),
    _fault(
        "replay/tools.py",
        "            start += len(numbers)\n",
        "            start = len(numbers)\n",
        "a deal begins anew with every segment",
    ),
    _fault(
        "replay/tools.py",
        "order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))",
        "order = torch.arange(total)",
        "the first part receives the oldest transitions",
    ),
    _fault(
        "replay/tools.py",
        "torch.Generator().manual_seed(seed)",
        "torch.Generator().manual_seed(0)",
        "a deal does not depend on its seed",
    ),
    # LeRobot.
    _fault(
        "datasets/lerobot/dataset.py",
        "self.stats = {ours[name]: entry for name, entry in stats.items() if name in ours}",
        "self.stats = stats",
        "statistics keep the names that the data set has",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "read_table(self.root / file, columns=[theirs])",
        "read_table(self.root / file, columns=[name])",
        "whole columns are read under LeRobot's names alone",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "columns[name] = read_video(\n                self.root / path",
        "columns[name] = read_video(\n                self.root / record.videos[name][0]",
        "videos are found under LeRobot's names alone",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "    if not by_episode.is_file():\n        return _joined_stats(root)\n",
        "",
        "version 2.0 is read as version 2.1",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "        if twice:\n",
        "        if False:\n",
        "a column of the data set is lost to a renamed one",
    ),
    _fault(
        "frames.py",
        "cfg.columns if e.columns is None else e.columns",
        "cfg.columns",
        "data sets of a mixture all have the first one's names",
    ),
    _fault(
        "frames.py",
        "cfg.columns if e.columns is None else e.columns",
        "e.columns or {}",
        "data sets of a mixture have LeRobot's names unless they name their own",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        'np.searchsorted(self._ends, indices, side="right")',
        'np.searchsorted(self._ends, indices, side="left")',
        "an episode's first frame belongs to the one before",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "offsets = indices[places] - record.start",
        "offsets = indices[places]",
        "images are counted over the whole data set",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "start_seconds=start + offset / fps",
        "start_seconds=offset / fps",
        "frames of a shared video are those of its first episode",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        'self.tasks[int(table["task_index"][0].as_py())]',
        "self.tasks[0]",
        "every episode has the first task",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        'key=lambda row: int(row["episode_index"])',
        'key=lambda row: str(row["episode_index"])',
        "episodes of version 2.1 are sorted as text",
    ),
    _fault(
        "datasets/lerobot/dataset.py",
        "        sorted(episodes, key=lambda record: record.start),\n",
        "        episodes,\n",
        "episodes keep the order of the metadata's files",
    ),
    _fault(
        "datasets/lerobot/stats.py",
        "** 2 + (means - mean) ** 2) * counts",
        "** 2) * counts",
        "how episodes differ is missing from the standard deviation",
    ),
    _fault(
        "datasets/lerobot/stats.py",
        "mean = (means * counts).sum(0) / total",
        "mean = means.mean(0)",
        "short episodes weigh as much as long ones",
    ),
    _fault(
        "datasets/lerobot/stats.py",
        "chosen = np.linspace(0, len(values) - 1, min(len(values), MAX_IMAGES)).round().astype(int)",
        "chosen = np.arange(min(len(values), MAX_IMAGES))",
        "statistics of images are those of an episode's beginning",
    ),
    _fault(
        "datasets/lerobot/writer.py",
        '"index": self._num_frames + steps[:, None],',
        '"index": steps[:, None],',
        "frames are numbered within their episode",
    ),
    _fault(
        "datasets/lerobot/writer.py",
        "self._tasks.setdefault(episode.task, len(self._tasks))",
        "self._tasks.setdefault(episode.task, len(self._episodes))",
        "numbers of tasks have gaps",
    ),
    _fault(
        "datasets/lerobot/writer.py",
        "        start = file.num_frames\n",
        "        start = 0\n",
        "every episode begins at the start of its video",
    ),
    _fault(
        "datasets/lerobot/writer.py",
        "path = self._folder / VIDEO_PATH.format(video_key=name, **place(number))",
        "path = self._folder / VIDEO_PATH.format(video_key=name, **place(0))",
        "a new video overwrites the first",
    ),
    _fault(
        "datasets/lerobot/images.py",
        "seek = max(start_seconds - 0.5 / fps, 0.0)",
        "seek = max(start_seconds + 0.5 / fps, 0.0)",
        "images come one frame late",
    ),
    _fault(
        "datasets/lerobot/format.py",
        '"file_index": number % CHUNK_FILES}',
        '"file_index": number}',
        "files of later folders go on with their numbers",
    ),
    _fault(
        "datasets/lerobot/episodes.py",
        "length = len(recorded) if terminated else len(recorded) - 1",
        "length = len(recorded)",
        "an action whose effect is not known is learned from",
    ),
    _fault(
        "datasets/lerobot/episodes.py",
        "actions.float() if actions.is_floating_point() else actions[:, 0]",
        "actions.float()",
        "discrete actions become continuous",
    ),
]
