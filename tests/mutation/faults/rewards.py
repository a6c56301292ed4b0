"""Faults of rewards of text: the code sandbox, services, sums, and what is counted as correct."""

from __future__ import annotations

from tests.mutation.fault import Fault

LAUNCHER = "rlinf/utils/sandbox_launcher.py"
SANDBOX = "rlinf/utils/sandbox.py"
CODE = "rlinf/workers/reward/code_reward.py"
SERVICE = "rlinf/utils/json_service.py"
SANDBOX_TESTS = "tests/unit/utils/test_sandbox.py"
CODE_TESTS = "tests/unit/workers/reward/test_code_reward.py"
SERVICE_TESTS = "tests/unit/workers/reward/test_api_reward.py"
VLM = ("tests/unit/workers/reward/test_vlm_reward.py",)
EXCHANGE = ("tests/unit/workers/reward/test_exchange.py",)
RECORDS = "tests/unit/telemetry/test_responses.py"
JUDGE = ("tests/unit/workers/reward/test_judge_reward.py",)
_JUDGE = "rlinf/workers/reward/judge_reward.py"
JUDGE_MODEL = ("tests/unit/workers/reward/test_judge_model.py",)
_REPLIES = "rlinf/workers/reward/reply_engine.py"
_REPLY = "rlinf/algorithms/rewards/extraction.py"
TABLES = ("tests/unit/algorithms/rewards/test_wideseek_r1.py",)
_TABLE = "rlinf/algorithms/rewards/wideseek_r1.py"

FAULTS: list[Fault] = [
    # What ends a program
    Fault(
        LAUNCHER,
        "os.umask(0o022)",
        "os.umask(0o077)",
        (f"{SANDBOX_TESTS}::test_a_program_reads_prints_and_writes_in_its_own_folder",),
        "folders of the view are closed to the program",
    ),
    Fault(
        LAUNCHER,
        "    block_signals()\n    try:\n        return watch(",
        "    try:\n        return watch(",
        (f"{SANDBOX_TESTS}::test_signals_to_the_supervisor_are_the_programs_own_affair",),
        "a program can interrupt its supervisor",
    ),
    Fault(
        LAUNCHER,
        "        if (code := reap(program)) is not None:",
        "        if time.monotonic() < deadline and (code := reap(program)) is not None:",
        (f"{SANDBOX_TESTS}::test_a_program_that_ended_has_ended_however_late_that_is_noticed",),
        "a program that has ended is late where its supervisor was",
    ),
    Fault(
        LAUNCHER,
        "        if began >= deadline:",
        "        if False:",
        (f"{SANDBOX_TESTS}::test_greedy_programs_are_ended",),
        "a program may sleep as long as it likes",
    ),
    Fault(
        LAUNCHER,
        "for count in stat[11:15])",
        "for count in stat[11:12])",
        (f"{SANDBOX_TESTS}::test_time_in_the_kernel_counts",),
        "processor time in the kernel is not counted",
    ),
    Fault(
        LAUNCHER,
        "            found[pid] = stat\n            parents.append(pid)",
        "            found[pid] = stat",
        (f"{SANDBOX_TESTS}::test_processes_share_one_bound_of_memory",),
        "memory of a program's children is not counted",
    ),
    Fault(
        LAUNCHER,
        "for count in (resident_bytes, proportional_bytes):",
        "for count in (resident_bytes,):",
        (f"{SANDBOX_TESTS}::test_processes_share_one_bound_of_memory",),
        "pages that a fork shares count for each process",
    ),
    Fault(
        LAUNCHER,
        '    if sum(int(stat[17]) for stat in found.values()) > plan["limits"]["RLIMIT_NPROC"]:',
        "    if False:",
        (f"{SANDBOX_TESTS}::test_the_number_of_processes_is_bounded_where_the_kernel_does_not",),
        "a root's program may have any number of processes",
    ),
    Fault(
        LAUNCHER,
        "        refuse_ownerless_memory()\n",
        "",
        (f"{SANDBOX_TESTS}::test_no_memory_can_be_had_that_no_process_is_charged_for",),
        "memfds and shared mappings are bounded by nothing",
    ),
    Fault(
        LAUNCHER,
        "        (IF_EQUAL, 1, 0, MAP_SHARED_ANONYMOUS),",
        "        (IF_EQUAL, 0, 0, MAP_SHARED_ANONYMOUS),",
        (f"{SANDBOX_TESTS}::test_no_memory_can_be_had_that_no_process_is_charged_for",),
        "shared anonymous mappings are allowed",
    ),
    # What the sandbox makes of it
    Fault(
        SANDBOX,
        "_START_FACTOR * self._start_seconds",
        "0.0 * self._start_seconds",
        (f"{SANDBOX_TESTS}::test_starting_the_interpreter_takes_none_of_the_time",),
        "starting the interpreter takes of the program's time",
    ),
    Fault(
        SANDBOX,
        "if outcome.exit_code == 0 and outcome.output.strip() == word.encode():",
        "if outcome.exit_code is not None:",
        (f"{SANDBOX_TESTS}::test_an_interpreter_that_does_not_start_is_an_error_when_the_sandbox_is_made",),
        "the sandbox's check does not look at its outcome",
    ),
    Fault(
        SANDBOX,
        "            if exceeded:\n                _signal_group(launcher, signal.SIGTERM)\n",
        "            if exceeded:\n                _signal_group(launcher, signal.SIGKILL)\n",
        (f"{SANDBOX_TESTS}::test_too_much_output_ends_everything_that_the_program_started",),
        "children outlive a program that wrote too much",
    ),
    Fault(
        CODE,
        "        return _LIMITS[outcome.killed_for]",
        '        return "wrong"',
        (f"{CODE_TESTS}::test_each_reward_says_why_a_program_failed",),
        "a program that ran out of time counts as wrong",
    ),
    Fault(
        CODE,
        "self._failures.update(failures - {",
        "self._failures.update({} and {",
        (f"{CODE_TESTS}::test_programs_that_often_exceed_limits_are_logged",),
        "programs that exceed limits are not logged",
    ),
    # Services
    Fault(
        SERVICE,
        "        self._sock.settimeout(left)",
        "        self._sock.settimeout(None)",
        ("tests/unit/utils/test_json_service.py::test_a_silent_service_is_left",),
        "a service that says nothing is waited for",
    ),
    Fault(
        SERVICE,
        "        if left <= 0:",
        "        left = max(left, 1.0)\n        if left <= 0:",
        ("tests/unit/utils/test_json_service.py::test_the_time_of_a_request_is_that_of_the_whole_response",),
        "each byte of a response has time of its own",
    ),
    Fault(
        "rlinf/workers/reward/api_reward.py",
        "isinstance(rewards, list) and len(rewards)",
        "len(rewards)",
        (f"{SERVICE_TESTS}::test_an_answer_of_another_kind_is_shown",),
        "a text or a mapping passes for a list of rewards",
    ),
    Fault(
        SERVICE,
        "    ) from None",
        "    ) from failure",
        (f"{SERVICE_TESTS}::test_errors_do_not_hold_the_secrets_of_an_address",),
        "the cause of an error shows the address's secrets",
    ),
    # Sums and shares
    Fault(
        "rlinf/telemetry/responses.py",
        " or math.isclose(reward, correct_reward, rel_tol=_ROUNDING, abs_tol=_ROUNDING)",
        "",
        (RECORDS,),
        "rounding makes a correct response wrong",
    ),
    Fault(
        "rlinf/workers/reward/reward_worker.py",
        "for name, value in measured.items() for key",
        "for name, value in {}.items() for key",
        ("tests/unit/workers/reward/test_reward_worker.py",),
        "what rewards measure is lost",
    ),
    Fault(
        "rlinf/algorithms/filtering.py",
        "    if rewards_lower_bound is None and rewards_upper_bound is None:",
        "    if False:",
        ("tests/unit/algorithms/test_filtering.py",),
        "filter_rewards without bounds does nothing",
    ),
    Fault(
        "rlinf/workers/actor/logprobs.py",
        "attention_size=config.num_attention_heads * head_dim",
        "attention_size=config.hidden_size",
        ("tests/unit/algorithms/test_flops.py",),
        "operations of attention follow the hidden size",
    ),
    Fault(
        "rlinf/workers/reward/vlm_reward.py",
        "        self.history.restart(request.env_ids[request.starts].tolist())\n",
        "",
        VLM,
        "an episode's history holds images of the one before",
    ),
    Fault(
        "rlinf/workers/reward/vlm_reward.py",
        "for camera in zip(*frames, strict=True) for image in camera)",
        "for camera in frames for image in camera)",
        VLM,
        "images of the cameras take turns",
    ),
    Fault(
        "rlinf/workers/reward/vlm_reward.py",
        "deque(maxlen=self.size)",
        "deque()",
        VLM,
        "a history has no limit",
    ),
    Fault(
        "rlinf/workers/reward/vlm_reward.py",
        "count >= self.cfg.min_history_size and count % self.cfg.input_interval == 0",
        "count > self.cfg.min_history_size and count % self.cfg.input_interval == 0",
        VLM,
        "the first question is a chunk late",
    ),
    Fault(
        "rlinf/workers/reward/vlm_reward.py",
        "count >= self.cfg.min_history_size and count % self.cfg.input_interval == 0",
        "count >= self.cfg.min_history_size",
        VLM,
        "the model is asked about every chunk",
    ),
    Fault(
        "rlinf/algorithms/rewards/extraction.py",
        'return found[-1].replace(",", "") if found',
        'return found[0].replace(",", "") if found',
        VLM,
        "the first number of a reply counts",
    ),
    Fault(
        "rlinf/workers/reward/vlm_reward.py",
        "torch.where(request.executed.any(-1), cfg.interval_reward, 0.0)",
        "torch.zeros(len(request.executed))",
        VLM,
        "chunks that are not asked about are worth nothing",
    ),
    Fault(
        _REPLIES,
        "self.tokenizer.encode(text, add_special_tokens=False)",
        "self.tokenizer.encode(question, add_special_tokens=False)",
        VLM,
        "the question is asked without the chat template",
    ),
    Fault(
        "rlinf/workers/reward/exchange.py",
        "first_env = (self.first_stage + stage) * len(step.executed)",
        "first_env = stage * len(step.executed)",
        EXCHANGE,
        "environments of two ranks have the same numbers",
    ),
    Fault(
        "rlinf/workers/reward/exchange.py",
        "        if self.resets_every_epoch:\n            self._ended.pop(stage, None)\n",
        "",
        EXCHANGE,
        "an epoch that resets its environments begins no episode",
    ),
    Fault(
        "rlinf/workers/reward/exchange.py",
        "self._ended[stage] = (step.terminations | step.truncations).any(-1)",
        "self._ended[stage] = step.terminations.any(-1)",
        EXCHANGE,
        "behind a truncation the episode goes on",
    ),
    Fault(_TABLE, "found.setdefault(", "found.__setitem__(", TABLES, "of rows with equal keys the last counts"),
    Fault(
        _TABLE,
        "(len(columns) * (len(wanted) + len(given)))",
        "(len(columns) * 2 * len(wanted))",
        TABLES,
        "rows that are not in the reference cost nothing",
    ),
    Fault(
        _TABLE,
        "    return Table(columns, tuple(rows)) if rows else None\n",
        "    return Table(columns, tuple(rows))\n",
        TABLES,
        "a head is a table",
    ),
    Fault(_TABLE, "rules[-1] + 1 :]", "rules[0] + 1 :]", TABLES, "the rows are those of the first table"),
    Fault(_TABLE, 'return "".join(name.lower().split())', "return name.lower()", TABLES, "blanks tell columns apart"),
    Fault(
        _TABLE,
        "    return normalized(stripped) if number is None else",
        "    return stripped if number is None else",
        TABLES,
        "cells are compared letter by letter",
    ),
    Fault(_TABLE, "or columns[:1]", "or columns", TABLES, "a row is found by all its cells"),
    Fault(
        _TABLE,
        "{**query.metadata, **(reference",
        "{**(reference",
        TABLES,
        "columns that metadata names are not looked at",
    ),
    Fault(
        _TABLE,
        "        return wrong + score * (self.cfg.correct_reward - wrong)\n",
        "        return wrong + score * self.cfg.correct_reward\n",
        TABLES,
        "a right answer is worth more than correct_reward",
    ),
    Fault(
        _JUDGE,
        "_FIELDS.sub(lambda found: fields[found[1]], self.cfg.question)",
        "self.cfg.question.format(**fields)",
        JUDGE,
        "braces in a response are filled in",
    ),
    Fault(
        _REPLIES,
        "number = str(next(self._numbers))",
        "number = str(0)",
        JUDGE_MODEL,
        "responses that are judged at a time get each other's replies",
    ),
    Fault(
        _REPLIES,
        "tokenize=False, add_generation_prompt=True)",
        "tokenize=False, add_generation_prompt=False)",
        JUDGE_MODEL,
        "the judge goes on with the question",
    ),
    Fault(
        _REPLIES,
        "SamplingParams(temperature=0.0,",
        "SamplingParams(temperature=1.0,",
        JUDGE_MODEL,
        "replies are drawn",
    ),
    Fault(_JUDGE, 'f"Bearer {cfg.api_key}"', '"Bearer"', JUDGE, "the server is not given its key"),
    Fault(
        _JUDGE,
        "self._threads.map(self._reply, (text for text, _ in questions))",
        "map(self._reply, (text for text, _ in questions))",
        JUDGE,
        "one response after the other is judged",
    ),
    Fault(
        _JUDGE, '"temperature": 0.0', '"temperature": 1.0', JUDGE, "the same response is judged differently each time"
    ),
    Fault(
        _JUDGE,
        "ThreadPoolExecutor(cfg.max_running_requests,",
        "ThreadPoolExecutor(32,",
        JUDGE,
        "the server gets any number of requests",
    ),
    Fault(
        _JUDGE,
        "    if not isinstance(content, str):\n",
        "    if False:\n",
        JUDGE,
        "a reply without text is no error of the server's",
    ),
    Fault(
        _REPLY,
        "of_word[words[-1]] if words",
        "of_word[words[0]] if words",
        JUDGE,
        "the first known word of a reply counts",
    ),
    Fault(
        _REPLY,
        "    return of_word[words[-1]] if words else invalid_reward\n",
        "    return of_word[words[-1]] if words else 0.0\n",
        JUDGE,
        "a reply without a known word is worth nothing",
    ),
]
