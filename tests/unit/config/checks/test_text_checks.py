"""What a recipe of a language model must say, and what is said of one that does not."""

from __future__ import annotations

import pytest
from reasoning_problems import VALUES, WITH_INFERENCE, problems

SAC = [f"~algorithm.{key}" for key in ("loss_agg_func", "clip_ratio_low", "clip_ratio_high")]


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        # Keys that are not known here, and those of something else.
        (["data.promt_key=q"], "data.promt_key", "Did you mean 'data.prompt_key'?"),
        (["algorithm.sampling_params.temprature=1"], "algorithm.sampling_params.temprature", "sampling_params.temper"),
        (["rollout.vllm.enable_prefix_caching=true"], "rollout.vllm", "rollout_backend=vllm"),
        (["rollout.rollout_backend=vlm"], "rollout.rollout_backend", "Did you mean 'vllm'?"),
        (["rollout.pipeline_stage_num=2"], "rollout.pipeline_stage_num", "unknown key"),
        (["algorithm.gae_lambda=0.9"], "algorithm.gae_lambda", "not used by adv_type=grpo"),
        (["algorithm.reward_type=chunk_level"], "algorithm.reward_type", "unknown key"),
        (["env.train.env_type=gymnasium"], "env", "it belongs to runner.task_type=collect or"),
        (["actor.model.model_type=mlp_policy"], "actor.model.model_type", "causal_lm"),
        (["reward.rewards.math.reward_type=env"], "reward.rewards.math.reward_type", "another kind of recipe"),
        (["runner.max_tokens_per_mbs=0"], "runner.max_tokens_per_mbs", "integer > 0"),
        (["runner.task_type=reasonning"], "runner.task_type", "Did you mean 'reasoning'?"),
        (["~data.rollout_batch_size"], "data.rollout_batch_size", "missing; required"),
        (["actor.enable_dp_load_balance=true"], "actor.enable_dp_load_balance", "always shared out"),
        (["algorithm.n_minibatches=4"], "algorithm.n_minibatches", "write actor.global_batch_size"),
        (["algorithm.sampling_params.do_sample=true"], "algorithm.sampling_params.do_sample", "temperature: 0"),
        (["actor.tokenizer.padding_side=left"], "actor.tokenizer", "actor.model.model_path"),
        (["runner.seq_length=2048"], "runner.seq_length", "follows from data.max_prompt_length"),
        # Sections that do not fit together.
        (["data.train_data_paths=[]"], "data.train_data_paths", "Name a .jsonl"),
        (["data.val_data_paths=[]"], "data.val_data_paths", "runner.val_check_interval=-1"),
        (["actor.global_batch_size=100"], "actor.global_batch_size", "256 x algorithm.group_size 4 = 1024. Set"),
        (["runner.max_tokens_per_mbs=23"], "runner.max_tokens_per_mbs", "Raise it to 24 at least"),
        (["algorithm.group_size=1"], "algorithm.group_size", "allowed: an integer > 1"),
        (["algorithm.adv_type=gae"], "actor.model.add_value_head", "Set it to true"),
        (["critic.use_critic_model=true"], "critic.use_critic_model", "algorithm.adv_type=gae"),
        ([*VALUES, "critic.use_critic_model=true"], "critic.use_critic_model", "algorithm.loss_type=actor"),
        (["algorithm.adv_type=gae", "critic.use_critic_model=true", "actor.model.is_lora=true"],
         "critic.model.is_lora", "Set critic.model"),
        (["critic.value_clip=0.2"], "critic.value_clip", "without critic.use_critic_model"),
        (["actor.model.add_value_head=true"], "actor.model.add_value_head", "algorithm.loss_type=actor_critic"),
        ([*SAC, "algorithm.loss_type=embodied_sac"], "algorithm.loss_type", "algorithm.loss_type=actor"),
        (["algorithm.staleness_threshold=1", "rollout.enable_offload=true"], "rollout.enable_offload", "Remove it"),
        (["reward.rewards.math.weight=0.0"], "reward.rewards", "received weights [0.0]"),
        (["cluster.cpu_slots_per_node=2", "cluster.component_placement.actor=0-1", "actor.global_batch_size=1"],
         "actor.global_batch_size", "2 actor ranks need an answer each"),
        (["algorithm.max_num_gen_batches=2", "algorithm.adv_type=reinpp"], "algorithm.max_num_gen_batches", "grpo"),
        (["algorithm.max_num_gen_batches=2", "data.gen_batch_size=255"], "data.gen_batch_size", "Set it to 512"),
        (["runner.val_samples=4", "runner.val_pass_at=[1,8]"], "runner.val_pass_at", "Set runner.val_samples=8"),
        (["data.val_data_paths=[a/test.jsonl,b/test.parquet]"], "data.val_data_paths", "the name 'test'"),
        (["algorithm.sampling_params.top_k=0"], "algorithm.sampling_params.top_k", "Set it to -1"),
        # Keys without effect.
        (["runner.val_pass_at=[1]"], "runner.val_pass_at", "while runner.val_samples is 1"),
        (["data.gen_batch_size=128"], "data.gen_batch_size", "while algorithm.max_num_gen_batches is 1"),
        (["actor.critic_optim.lr=1e-3"], "actor.critic_optim", "task_type=reasoning"),
        (["actor.model.num_q_heads=3"], "actor.model.num_q_heads", "task_type=reasoning"),
        (["actor.model.num_action_chunks=3"], "actor.model.num_action_chunks", "task_type=reasoning"),
        (["runner.enable_decoupled_mode=true"], "runner.enable_decoupled_mode", "task_type=reasoning"),
        (["runner.enable_dynamic_batch_size=false"], "runner.max_tokens_per_mbs", "enable_dynamic_batch_size"),
        (["actor.model.lora_rank=4"], "actor.model.lora_rank", "actor.model.is_lora"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(f"{path}: ") and remedy in line for line in found), found


@pytest.mark.parametrize(
    "overrides",
    [
        VALUES,
        ("algorithm.loss_type=gspo",),
        ("algorithm.adv_type=reinpp", "algorithm.group_size=1", "actor.global_batch_size=64"),
        ("algorithm.staleness_threshold=2",),
        ("rollout.rollout_backend=vllm", "rollout.vllm.enable_prefix_caching=false"),
        ("rollout.rollout_backend=sglang",),
        ("algorithm.staleness_threshold=0", "rollout.enable_offload=true"),
        ("algorithm.max_num_gen_batches=2", "data.gen_batch_size=512"),
        ("runner.val_samples=8", "runner.val_pass_at=[1,4,8]", "data.val_data_paths=[a/x.jsonl,org/y:main]"),
        ("runner.only_eval=true", "data.train_data_paths=[]"),
        ("data.val_data_paths=[]", "runner.val_check_interval=-1", "~runner.stop_at"),
        (*WITH_INFERENCE, "algorithm.staleness_threshold=0", "inference.max_tokens_per_mbs=24"),
        ("runner.enable_dynamic_batch_size=false", "~runner.max_tokens_per_mbs"),
    ],
)
def test_what_fits_together_is_valid(overrides: tuple[str, ...]) -> None:
    assert problems(*overrides) == []


VLLM = ["rollout.rollout_backend=vllm", "cluster.cpu_slots_per_node=null"]


def has(num_gpus: int) -> tuple[str, str]:
    groups = f"[{{label: gpu, node_ranks: 0, accelerators_per_node: {num_gpus}}}]"
    return "cluster.num_nodes=1", f"cluster.node_groups={groups}"


def spread(size: int, placement: str) -> list[str]:
    rules = f"{{actor: 0, reward: {{node_group: node, placement: 0}}, rollout: {placement}}}"
    return [*VLLM, f"rollout.tensor_parallel_size={size}", f"cluster.component_placement={rules}"]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (spread(2, "0-3"), ("received 2", "'0-3' gives each process 1 accelerator(s)", "Set it to 1", "'0-3:0-1'")),
        (spread(1, "'0-3:0-1'"), ("received 1", "gives each process 2 accelerator(s)", "Set it to 2", "'0-1:0-1'")),
        (spread(4, "'0-1:0,2:1'"), ("gives each process 1 or 2 accelerator(s)", "Give all processes as many")),
        (spread(2, "'0-1:0,2:1'"), ("gives each process 1 or 2 accelerator(s)", "Give all processes as many")),
        ([*spread(2, "all"), *has(4)], ("'all' gives each process 1 accelerator(s)",)),
        ([*spread(2, "all"), *has(0), "cluster.cpu_slots_per_node=2"], ("'all' gives each process 1 CPU slot(s)",)),
    ],
)
def test_an_engine_is_spread_over_the_devices_of_its_process(overrides: list[str], told: tuple[str, ...]) -> None:
    (found,) = [line for line in problems(*overrides) if line.startswith("rollout.tensor_parallel_size: ")]
    for words in told:
        assert words in found, found


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (spread(1, "'0-3:0-1'"), ("received 1, times pipeline_parallel_size=3 is 3 devices", "divisor of it")),
        (spread(1, "'0-5:0'"), ("Set it to 2",)),
    ],
)
def test_stages_multiply_the_devices(overrides: list[str], told: tuple[str, ...]) -> None:
    keys = [*overrides, "rollout.pipeline_parallel_size=3"]
    (found,) = [line for line in problems(*keys) if line.startswith("rollout.tensor_parallel_size: ")]
    for words in told:
        assert words in found, found
    fitting = [*spread(2, "'0-5:0'"), "rollout.pipeline_parallel_size=3"]
    assert not [line for line in problems(*fitting) if "tensor_parallel_size" in line]


def on_servers(*urls: str) -> list[str]:
    return ["rollout.rollout_backend=server", f"+rollout.server.base_urls=[{', '.join(urls)}]"]


@pytest.mark.parametrize(
    ("overrides", "path", "told"),
    [
        (on_servers(), "rollout.server.base_urls", "received none"),
        (on_servers("node1:8000"), "rollout.server.base_urls", "http://HOST:PORT"),
        (on_servers("http://a:1", "http://a:1"), "rollout.server.base_urls", "names a server twice"),
        ([*on_servers("http://a:1"), "rollout.enable_offload=true"], "rollout.enable_offload", "share"),
        (
            [
                *on_servers("http://a:1"),
                "cluster.cpu_slots_per_node=2",
                "cluster.component_placement={actor: 0, reward: 0, rollout: 0-1}",
            ],
            "cluster.component_placement.rollout",
            "received 2 processes",
        ),
    ],
)
def test_one_process_reaches_all_engine_servers(overrides: list[str], path: str, told: str) -> None:
    (found,) = [line for line in problems(*overrides) if line.startswith(f"{path}: ")]
    assert told in found, found


def test_engine_servers_that_can_be_reached_are_valid() -> None:
    assert not problems(*on_servers("http://a:1", "https://b/path"))


@pytest.mark.parametrize(
    "overrides",
    [
        spread(2, "'0-3:0-1'"),
        spread(1, "0-3"),
        spread(1, "'0:0-3'"),
        [*spread(4, "'all:0'"), *has(4)],
        # How many these are is known when the run starts.
        spread(2, "all"),
        # A node has as many devices as it has.
        spread(2, "{node_group: node, placement: 0}"),
    ],
)
def test_an_engine_that_fits_its_process_is_valid(overrides: list[str]) -> None:
    assert not [line for line in problems(*overrides) if "tensor_parallel_size" in line]


def test_all_problems_of_a_recipe_are_told_together() -> None:
    found = problems("data.train_data_paths=[]", "algorithm.group_size=1", "actor.global_batch_size=100")
    for path in ("data.train_data_paths", "algorithm.group_size", "actor.global_batch_size"):
        assert any(line.startswith(f"{path}: ") for line in found)
