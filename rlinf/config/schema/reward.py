"""The ``reward`` section: rewards of actions, for embodied recipes, and rewards of text, for language models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from rlinf.config.schema.base import (
    ConfigSection,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Precision,
)
from rlinf.config.schema.generation import GenerationConfig
from rlinf.registry import Registry


@dataclass(frozen=True, kw_only=True)
class RewardTermConfig(ConfigSection):
    """Keys of every reward."""

    reward_type: str
    """Registered reward."""
    weight: float = 1.0
    """Factor in the sum that the policy learns from."""


@dataclass(frozen=True, kw_only=True)
class EmbodiedRewardConfig(RewardTermConfig):
    """Keys of every reward of actions."""

    reward_mode: Literal["per_step", "terminal"] = "per_step"
    """Whether every chunk of actions is rewarded, or only the one that ends an episode."""


@dataclass(frozen=True, kw_only=True)
class EnvRewardConfig(EmbodiedRewardConfig):
    """``reward_type: env``: what the environment itself gives."""


@dataclass(frozen=True, kw_only=True)
class ActionPenaltyConfig(EmbodiedRewardConfig):
    """``reward_type: action_penalty``: minus the mean square of an action's dimensions."""


@dataclass(frozen=True, kw_only=True)
class ModelRewardConfig(EmbodiedRewardConfig):
    """``reward_type: model``: a learned classifier's probability that the task is solved after the chunk."""

    model_path: str
    """File that ``examples/reward/train_reward_model.py`` wrote, or ``classifier.pt`` of a checkpoint of a recipe with
    ``loss_type: success``."""
    reward_threshold: Fraction = 0.0
    """Probabilities below this count as 0."""

    def required_files(self) -> dict[str, str]:
        """Return the classifier."""
        return {"model_path": self.model_path}


@dataclass(frozen=True, kw_only=True)
class ApiRewardConfig(EmbodiedRewardConfig):
    """``reward_type: api``: a number for each environment from an HTTP service."""

    url: str
    """Address that the requests are posted to."""
    obs_keys: list[str]
    """Keys of the observation that are sent."""
    timeout_seconds: PositiveFloat = 30.0
    """Time of a request, from connecting to the last byte of the response."""
    max_retries: NonNegativeInt = 3
    """Further attempts after one that failed, each twice as long after the last."""


@dataclass(frozen=True, kw_only=True)
class VLMRewardConfig(EmbodiedRewardConfig):
    """``reward_type: vlm``: what a vision-language model replies when it is shown the last images of an episode."""

    model_path: str
    """Folder of a checkpoint of the Qwen2.5-VL or Qwen3-VL family."""
    question: str
    """What follows the images; ``{task}`` stands for what the environment's ``task_descriptions`` say."""
    replies: dict[str, float] = field(default_factory=dict)
    """Rewards of words in the reply, of which the last counts; empty takes the last number of the reply."""
    invalid_reward: float = 0.0
    """Reward of any other reply."""
    image_keys: list[str] = field(default_factory=lambda: ["main_images"])
    """Cameras that the model is shown, all images of one before those of the next."""
    history_size: PositiveInt = 1
    """Images of each camera: the last ones after a chunk each."""
    min_history_size: PositiveInt = 1
    """Chunks of an episode before the model is queried."""
    input_interval: PositiveInt = 1
    """Chunks between two questions."""
    interval_reward: float = 0.0
    """Reward of a chunk that the model is not queried about."""
    max_new_tokens: PositiveInt = 16
    """Tokens of a reply."""
    max_context_tokens: PositiveInt = 4096
    """Tokens of images, question and reply together."""
    max_running_requests: PositiveInt = 16
    """Questions that are answered at a time."""
    precision: Precision = "fp32"
    """Of the model."""

    def required_files(self) -> dict[str, str]:
        """Return the model."""
        return {"model_path": self.model_path}

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the model and writes images."""
        return ("transformers", "PIL")


@dataclass(frozen=True, kw_only=True)
class RewardConfig(ConfigSection):
    """The ``reward`` section; without it policies learn from the environments' own rewards."""

    max_concurrency: ClassVar[int] = 1
    """A rank scores one chunk of actions at a time."""

    group_name: str = "RewardGroup"
    """Name of the worker group."""
    rewards: dict[str, EmbodiedRewardConfig] = field(default_factory=dict)
    """Rewards by names of your choice: what is learned from is their weighted sum, ``env/reward/<name>`` shows each."""


@dataclass(frozen=True, kw_only=True)
class TextRewardConfig(RewardTermConfig):
    """Keys of every reward of text."""


@dataclass(frozen=True, kw_only=True)
class VerdictRewardConfig(TextRewardConfig):
    """Keys of rewards that decide whether a response is right."""

    correct_reward: float = 1.0
    """Reward of a right answer."""
    incorrect_reward: float = 0.0
    """Reward of any other."""


@dataclass(frozen=True, kw_only=True)
class MathRewardConfig(VerdictRewardConfig):
    """``reward_type: math``: whether an answer equals the reference, as mathematics."""

    reference_format: Literal["latex", "gsm8k"] = "latex"
    """``latex``: numbers and LaTeX; ``gsm8k``: texts whose solution follows the last ``####``."""
    require_boxed: bool = False
    """Whether an answer counts only within ``\\boxed``; else its end does where there is no box."""
    max_answer_chars: PositiveInt = 1024
    """Length of what is compared; anything longer is wrong."""
    timeout_seconds: PositiveFloat = 5.0
    """Time that comparing an answer with a solution may take."""
    num_processes: PositiveInt = 2
    """Processes that compare."""


@dataclass(frozen=True, kw_only=True)
class CodeRewardConfig(VerdictRewardConfig):
    """``reward_type: code``: whether a program passes its tests, in a sandbox."""

    score: Literal["all", "fraction"] = "all"
    """Whether a program must pass all tests, or its score is the share that it passes."""
    max_tests: PositiveInt = 16
    """Tests of each reference that are run; further ones are left out."""
    max_programs: PositiveInt = 4
    """Programs that run at a time."""
    timeout_seconds: PositiveFloat = 5.0
    """Processor time, over all its processes, of a program that reads its input; of all calls and asserts of a program
    together. Starting the interpreter is not counted."""
    wall_timeout_seconds: PositiveFloat | None = None
    """Wall-clock time after which a program is ended that sleeps, or waits for a processor; null takes twelve times
    ``timeout_seconds``."""
    memory_bytes: PositiveInt = 512 << 20
    """Memory of all processes of a program together, and address space of each."""
    max_processes: PositiveInt = 16
    """Processes and threads of a program at a time."""
    max_output_bytes: PositiveInt = 1 << 20
    """Output of a program; one that writes more has failed."""
    max_program_chars: PositiveInt = 1 << 16
    """Length of a program; longer ones are not run."""
    allow_unsandboxed: bool = False
    """Run programs even where they cannot be isolated; they can then do what this process can."""


@dataclass(frozen=True, kw_only=True)
class SearchR1RewardConfig(VerdictRewardConfig):
    """``reward_type: searchr1``: exact match of what ``<answer>`` holds, after normalisation."""

    format_reward: float = 0.0
    """Added to a wrong answer that is given in ``<answer>`` tags as requested."""


@dataclass(frozen=True, kw_only=True)
class VQARewardConfig(VerdictRewardConfig):
    """``reward_type: vqa``: short answers about an image, compared as text, as a choice or as a number."""

    match: Literal["text", "choice", "number"] = "text"
    """``text``: equal after normalisation; ``choice``: the same letter; ``number``: close enough."""
    relative_tolerance: NonNegativeFloat = 0.0
    """Distance from the reference, as a share of it, that still counts as equal; with ``match: number``."""


@dataclass(frozen=True, kw_only=True)
class OverlongRewardConfig(TextRewardConfig):
    """``reward_type: overlong``: a soft punishment of answers that come close to the limit, as in DAPO."""

    max_tokens: PositiveInt
    """Length from which on the punishment is -1; ``algorithm.sampling_params.max_new_tokens``, as a rule."""
    buffer_tokens: PositiveInt
    """Tokens before that, over which the punishment falls from 0 to -1."""


@dataclass(frozen=True, kw_only=True)
class FunctionRewardConfig(TextRewardConfig):
    """``reward_type: function``: a function of yours."""

    function: str
    """Where it is: ``package.module:function``; plain or ``async``."""
    call: Literal["answer", "batch"] = "answer"
    """Whether it is called with one ``RewardQuery`` and returns a number, or with a list and returns a list."""
    fallback_reward: float = 0.0
    """Reward where the function raised, or was late."""
    timeout_seconds: PositiveFloat = 60.0
    """Time that a call may take."""
    max_calls: PositiveInt = 64
    """Calls of an ``async`` function that run at a time."""


@dataclass(frozen=True, kw_only=True)
class JudgeRewardConfig(TextRewardConfig):
    """``reward_type: judge``: what a language model replies about a response.

    The model is one that each reward rank holds (``model_path``), or one behind the OpenAI protocol (``url``).
    """

    model_path: str | None = None
    """Folder of a model that was tuned to follow instructions; placed where ``reward`` is."""
    engine: GenerationConfig | None = None
    """What generates with ``model_path``: keys as those of ``rollout``; null is ``hf``."""
    precision: Precision = "fp32"
    """Of the model of ``model_path``."""
    max_context_tokens: PositiveInt = 8192
    """Tokens of question, response and reply together, with ``model_path``."""
    url: str | None = None
    """Address of a server, for example ``http://127.0.0.1:8000/v1``."""
    model: str | None = None
    """Name of the model there."""
    api_key: str | None = None
    """The key of the server; ``${oc.env:NAME}`` takes it from the environment."""
    question: str = (
        "Judge whether a response is correct.\n\nQuestion: {prompt}\n\nReference answer: {reference}\n\n"
        "Response: {response}\n\nReply with one word: correct or incorrect."
    )
    """What the model is shown; ``{prompt}``, ``{response}`` and ``{reference}`` stand for those of the episode."""
    replies: dict[str, float] = field(default_factory=lambda: {"correct": 1.0, "incorrect": 0.0})
    """Rewards of words in the reply, of which the last counts; empty takes the last number of the reply."""
    invalid_reward: float = 0.0
    """Reward of any other reply."""
    max_new_tokens: PositiveInt = 512
    """Tokens of a reply."""
    max_running_requests: PositiveInt = 16
    """Responses that each reward rank has judged at a time."""
    timeout_seconds: PositiveFloat = 60.0
    """Time of a request to ``url``, from connecting to the last byte of the reply."""
    max_retries: NonNegativeInt = 3
    """Further requests to ``url`` after one that failed, each twice as long after the last."""

    def required_files(self) -> dict[str, str]:
        """Return the model."""
        return {} if self.model_path is None else {"model_path": self.model_path}

    def required_packages(self) -> tuple[str, ...]:
        """Return what reads the model."""
        return () if self.model_path is None else ("transformers",)


@dataclass(frozen=True, kw_only=True)
class WideSeekR1RewardConfig(VerdictRewardConfig):
    """``reward_type: wideseek_r1``: share of a table's cells that were found, or exact match of another answer.

    Between ``correct_reward`` and what an answer in the right form gets, in proportion.
    """

    format_reward: float = 0.0
    """Added to ``incorrect_reward`` where the answer is such a table, or in ``<answer>`` or ``\\boxed{}``."""


@dataclass(frozen=True, kw_only=True)
class TextApiRewardConfig(TextRewardConfig):
    """``reward_type: text_api``: a number for each answer from an HTTP service."""

    url: str
    """Address that the requests are posted to."""
    batch_size: PositiveInt = 64
    """Most answers in one request."""
    timeout_seconds: PositiveFloat = 30.0
    """Time of a request, from connecting to the last byte of the response."""
    max_retries: NonNegativeInt = 3
    """Further attempts after one that failed, each twice as long after the last."""


@dataclass(frozen=True, kw_only=True)
class TextModelRewardConfig(TextRewardConfig):
    """``reward_type: text_model``: the score of a Hugging Face model for sequence classification."""

    model_path: str
    """Folder of the model and its tokenizer."""
    label: NonNegativeInt = 0
    """Label whose probability is the reward; of a model with one output, that is."""
    template: Literal["text", "chat"] = "text"
    """Whether the model reads prompt and answer one after the other, or as turns of the tokenizer's chat template."""
    batch_size: PositiveInt = 16
    """Answers of one forward pass."""
    max_tokens: PositiveInt = 4096
    """Tokens that the model reads; further ones are cut off at the side that the tokenizer is set to."""

    def required_packages(self) -> tuple[str, ...]:
        """Return what loads the model."""
        return ("transformers",)

    def required_files(self) -> dict[str, str]:
        """Return the model's folder."""
        return {"model_path": self.model_path}


@dataclass(frozen=True, kw_only=True)
class WorkflowRewardConfig(TextRewardConfig):
    """``reward_type: workflow``: the number that ``agent.workflow`` returned for the episode."""


@dataclass(frozen=True, kw_only=True)
class TextRewardsConfig(ConfigSection):
    """The ``reward`` section of recipes for language models."""

    group_name: str = "RewardGroup"
    """Name of the worker group."""
    rewards: dict[str, TextRewardConfig] = field(default_factory=dict)
    """Rewards by names of your choice: what is learned from is their weighted sum, each is logged by itself."""
    max_concurrency: PositiveInt = 4
    """Batches of answers that each reward scores at a time."""


rewards: Registry[Any] = Registry("reward")
"""By ``reward_type``; the base of the config says whether it scores actions or text."""
rewards.register(
    "action_penalty", "rlinf.algorithms.rewards.action_rewards:ActionPenaltyReward", config=ActionPenaltyConfig
)
rewards.register("api", "rlinf.workers.reward.api_reward:ApiReward", config=ApiRewardConfig)
rewards.register("env", "rlinf.algorithms.rewards.action_rewards:EnvReward", config=EnvRewardConfig)
rewards.register("model", "rlinf.workers.reward.model_reward:ModelReward", config=ModelRewardConfig)
rewards.register("code", "rlinf.workers.reward.code_reward:CodeReward", config=CodeRewardConfig)
rewards.register("function", "rlinf.workers.reward.function_reward:FunctionReward", config=FunctionRewardConfig)
rewards.register("judge", "rlinf.workers.reward.judge_reward:JudgeReward", config=JudgeRewardConfig)
rewards.register("math", "rlinf.workers.reward.math_reward:MathReward", config=MathRewardConfig)
rewards.register("overlong", "rlinf.algorithms.rewards.overlong:OverlongReward", config=OverlongRewardConfig)
rewards.register("searchr1", "rlinf.algorithms.rewards.searchr1:SearchR1Reward", config=SearchR1RewardConfig)
rewards.register("text_api", "rlinf.workers.reward.api_reward:TextApiReward", config=TextApiRewardConfig)
rewards.register("text_model", "rlinf.workers.reward.model_reward:TextModelReward", config=TextModelRewardConfig)
rewards.register("vlm", "rlinf.workers.reward.vlm_reward:VLMReward", config=VLMRewardConfig)
rewards.register("vqa", "rlinf.algorithms.rewards.vqa:VQAReward", config=VQARewardConfig)
rewards.register("wideseek_r1", "rlinf.algorithms.rewards.wideseek_r1:WideSeekR1Reward", config=WideSeekR1RewardConfig)
rewards.register("workflow", "rlinf.algorithms.rewards.workflow_outcome:WorkflowReward", config=WorkflowRewardConfig)
