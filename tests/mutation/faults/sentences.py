"""Faults of classifiers and world models that judge success by a sentence."""

from __future__ import annotations

from tests.mutation.fault import Fault

_MODEL = "rlinf/models/control/success_classifier.py"
_FRAMES = "rlinf/models/control/frame_classifier.py"
_NETWORK = "rlinf/models/world/frame_unet.py"
_ENV = "rlinf/envs/simulators/world_model_env.py"
_LOSS = "rlinf/algorithms/frame_values/success.py"
_LEARNER = "rlinf/workers/actor/value_learner.py"
_REWARD = "rlinf/workers/reward/model_reward.py"
_CHECKS = "rlinf/config/checks/value_checks.py"
_NAMES = "rlinf/config/metric_names.py"
_SCRIPT = "examples/world_model/train_world_model.py"
MODEL = ("tests/unit/models/control/test_success_classifier.py",)
FRAMES = ("tests/unit/models/control/test_frame_classifier.py",)
NETWORK = ("tests/unit/models/world/test_frame_unet.py",)
ENV = ("tests/unit/envs/simulators/test_world_model_env.py",)
LOSS = ("tests/unit/algorithms/test_frame_values_success.py",)
_LEARNS = "tests/unit/workers/actor/test_value_learner.py::test_a_"
LEARNER = (
    f"{_LEARNS}batch_has_the_same_sentences_on_any_number_of_ranks",
    f"{_LEARNS}classifier_learns_whose_task_is_solved",
)
REWARD = ("tests/unit/workers/reward/test_model_reward.py",)
CHECKS = ("tests/unit/config/checks/test_value_checks.py",)
SCRIPT = ("tests/unit/examples/test_train_world_model.py",)

FAULTS: list[Fault] = [
    Fault(
        _MODEL,
        "row: self.reader(self.words(torch.tensor(row, device=numbers.device)))[1][0] for row",
        "row: 0 * self.reader(self.words(torch.tensor(row, device=numbers.device)))[1][0] for row",
        MODEL,
        "the sentence says nothing",
    ),
    Fault(
        _MODEL,
        "row: self.reader(self.words(torch.tensor(row, device=numbers.device)))[1][0] for row",
        "row: self.words(torch.tensor(row, device=numbers.device)).mean(0) for row",
        MODEL,
        "the order of words says nothing",
    ),
    Fault(
        _MODEL,
        "tuple(number for number in row if number)",
        "tuple(row)",
        MODEL,
        "a sentence is read otherwise beside a longer one",
    ),
    Fault(_MODEL, "if unknown or not words:", "if not words:", MODEL, "unknown words are no fault"),
    Fault(_MODEL, "if unknown or not words:", "if unknown:", MODEL, "an empty sentence is none"),
    Fault(_MODEL, "task.lower()", "task", MODEL, "capital letters make another word"),
    Fault(
        _MODEL,
        "    words: tuple[str, ...] = ()\n",
        '    words: tuple[str, ...] = ("a",)\n',
        MODEL,
        "files without sentences cannot be read any more",
    ),
    Fault(
        _FRAMES,
        "return {**seen, TASK_WORDS: self.classifier.word_numbers(tasks)}",
        "return {**seen, TASK_WORDS: self.classifier.word_numbers([tasks[0]] * len(tasks))}",
        FRAMES,
        "all frames have the first one's sentence",
    ),
    Fault(
        _NETWORK,
        "words = self.classifier.word_numbers(tasks).repeat_interleave(frames.images.shape[1], 0)",
        "words = self.classifier.word_numbers(tasks).repeat(frames.images.shape[1], 1)",
        NETWORK,
        "frames are judged by the sentences of other rows",
    ),
    Fault(
        _NETWORK,
        "            self.classifier.word_numbers(tasks)\n\n",
        "            pass\n\n",
        NETWORK,
        "tasks that it cannot judge are not noticed",
    ),
    Fault(
        _ENV,
        "        model.check_tasks(self._recorded.tasks)\n",
        "",
        ENV,
        "tasks that the model cannot judge are noticed in the middle of a run",
    ),
    Fault(
        _ENV,
        "self.model.success(frames, self._tasks)",
        "self.model.success(frames, [self._tasks[0]] * len(self._tasks))",
        ENV,
        "all rows are judged by the first one's sentence",
    ),
    Fault(
        _ENV,
        "self._tasks[row] = self._recorded.tasks_of(steps[-1:])[0]",
        "self._tasks[row] = self._recorded.tasks[0]",
        ENV,
        "all episodes have the first sentence",
    ),
    Fault(
        _ENV,
        '        self.model.to("cpu")\n',
        "        pass\n",
        ENV,
        "the accelerator is not freed",
    ),
    Fault(
        _ENV,
        '"""See ``VectorEnv``."""\n        self.model.to(self.device)\n',
        '"""See ``VectorEnv``."""\n',
        ENV,
        "the network stays on the host",
    ),
    Fault(_LOSS, "& (targets > 0.5)", "& (targets >= 0.0)", LOSS, "unsolved frames get other sentences"),
    Fault(_LOSS, "np.where(is_wrong, 0.0, targets)", "targets", LOSS, "a wrong sentence is taken for a right one"),
    Fault(_LOSS, "if task != sentences[row]]", "if task]", LOSS, "the other sentence may be the same"),
    Fault(
        _LOSS,
        "others[int(draws[row] / self.changed_share * len(others))]",
        "others[0]",
        LOSS,
        "all get the same other sentence",
    ),
    Fault(
        _LEARNER,
        "self.frames.tasks, samples.draws[numbers])",
        "self.frames.tasks, samples.draws[: len(numbers)])",
        LEARNER,
        "ranks share the draws of the first",
    ),
    Fault(
        _LEARNER,
        "samples = Samples(chosen, frames, targets, generator.random(size))",
        "samples = Samples(chosen, frames, targets)",
        LEARNER,
        "frames never get another sentence",
    ),
    Fault(
        _LEARNER,
        "float((found <= 0.5).mean())",
        "float((found > 0.5).mean())",
        LEARNER,
        "what is taken for solved counts as refused",
    ),
    Fault(
        _REWARD,
        'if seen.words and "task_descriptions" not in request.obs:',
        "if False:",
        REWARD,
        "an environment without sentences fails somewhere else",
    ),
    Fault(_CHECKS, "len(set(words)) < len(words)", "False", CHECKS, "a word may stand there twice"),
    Fault(_CHECKS, "or word != word.lower()", "", CHECKS, "words with capital letters, which no sentence has"),
    Fault(
        _CHECKS,
        "if isinstance(loss, SuccessLossConfig) and not words:",
        "if False:",
        CHECKS,
        "frames get sentences that nothing reads",
    ),
    Fault(
        _NAMES,
        "[REFUSED_METRIC] if loss.wrong_sentence_share else []",
        "[]",
        CHECKS,
        "a run cannot be stopped by what it measures",
    ),
    Fault(
        _SCRIPT,
        "self.tasks = dataset.tasks_of(np.array([e.start for e in episodes], np.int64))",
        "self.tasks = dataset.tasks_of(np.zeros(len(episodes), np.int64))",
        SCRIPT,
        "all imagined episodes are judged by one sentence",
    ),
    Fault(
        _SCRIPT,
        "known[(known.index(task) + 1) % len(known)]",
        "known[known.index(task)]",
        SCRIPT,
        "the other sentence is the same",
    ),
    Fault(_SCRIPT, "    model.check_tasks(dataset.tasks)\n", "", SCRIPT, "an hour of training comes before the fault"),
    Fault(
        _SCRIPT, "if results.get(name, bar) < bar:", "if False:", SCRIPT, "a model below the bar looks like any other"
    ),
]
