"""Faults of what makes published pi-0 and pi-0.5 act as they do where they were published."""

from __future__ import annotations

from tests.mutation.fault import Fault

VLA = "tests/unit/models/vla"
RELATIVE = (f"{VLA}/test_relative_actions.py",)
INPUTS = (f"{VLA}/test_flow_inputs.py",)
OPENPI = (f"{VLA}/test_openpi.py",)
STATISTICS = (f"{VLA}/test_norm_statistics.py",)
PUBLISHED = (f"{VLA}/test_published_folder.py",)
WRITTEN = (f"{VLA}/test_write_statistics.py",)
FRAMES = ("tests/unit/workers/actor/test_supervised_frames.py",)
MIGRATION = ("tests/unit/cli/test_migrate_pi.py",)

_RELATIVE = "rlinf/models/vla/relative_actions.py"
_INPUTS = "rlinf/models/vla/flow_inputs.py"
_FLOW = "rlinf/models/vla/flow_vla.py"
_SCHEMA = "rlinf/config/schema/vla.py"
_SHAPE = "rlinf/models/vla/pi_model.py"
_FOLDER = "rlinf/models/vla/published_folder.py"
_NORMS = "rlinf/models/vla/norm_statistics.py"
_LEARNER = "rlinf/workers/actor/supervised_frames.py"
_WRITER = "toolkits/vla/write_statistics.py"
_MIGRATION = "rlinf/cli/migrate_pi.py"

FAULTS: list[Fault] = [
    Fault(_RELATIVE, "run > 0 for run", "run < 0 for run", RELATIVE, "the gripper is relative and the arm is not"),
    Fault(_RELATIVE, "return actions - _shift", "return actions + _shift", RELATIVE, "actions are twice the state off"),
    Fault(_RELATIVE, " * mask).unsqueeze(1)", ").unsqueeze(1)", RELATIVE, "every number is relative"),
    Fault(_INPUTS, "self.actions.normalize(to_relative(", "(to_relative(", RELATIVE, "deltas are not normalised"),
    Fault(
        _INPUTS,
        "return to_absolute(self.actions.restore(predicted)",
        "return to_absolute((predicted)",
        RELATIVE,
        "normalised actions are added to states",
    ),
    Fault(_INPUTS, "if relative.any():", "if False:", RELATIVE, "actions are relative to states that are not there"),
    Fault(
        _FLOW,
        "self.inputs.of_actions(planned.to(self.device), obs)",
        "self.inputs.actions.normalize(planned.to(self.device))",
        RELATIVE,
        "what was planned leads in the wrong frame of reference",
    ),
    Fault(
        _FLOW,
        "return self.inputs.to_actions(self.executed(chain[:, -1:])[:, 0], obs)",
        "return self.inputs.actions.restore(self.executed(chain[:, -1:])[:, 0])",
        RELATIVE,
        "steered actions stay relative",
    ),
    Fault(_FLOW, "if executed > predicted:", "if False:", OPENPI, "more actions are executed than there are"),
    Fault(
        _SCHEMA,
        'self.variant == "pi05" and self.discrete_state_input is not False',
        'self.variant == "pi05"',
        INPUTS,
        "prompts hold states that the checkpoint was not trained with",
    ),
    Fault(_SCHEMA, '200 if self.variant == "pi05" else 48', "64", INPUTS, "prompts are shorter than published ones"),
    Fault(_INPUTS, "if self._pads_words else state", "if True else state", INPUTS, "prompts hold states of padding"),
    Fault(
        _SHAPE, '    "action_horizon": 50,\n', '    "action_horizon": 10,\n', OPENPI, "folders without a file are short"
    ),
    Fault(_SHAPE, "_LEROBOT.get(key, key): value", "key: value", OPENPI, "sizes of LeRobot's folders are not read"),
    Fault(
        _FOLDER,
        "needed[other] for name, other in (tied",
        "other for name, other in (tied",
        OPENPI,
        "tied weights of LeRobot are not found",
    ),
    Fault(_FOLDER, '("**/norm_stats.json", ', '("assets/**/*.json", ', PUBLISHED, "statistics are left behind"),
    Fault(_FOLDER, "if said:", "if False:", PUBLISHED, "what was trained predicts too many actions when it is read"),
    Fault(_NORMS, "lambda path: not path", "lambda path: path", STATISTICS, "statistics of pretraining are used"),
    Fault(_NORMS, ".abs() > limit)", " > limit)", STATISTICS, "numbers below the statistics are not counted"),
    Fault(_LEARNER, "if share > _RARE]", "if share > 0.6]", FRAMES, "data in other units are not named"),
    Fault(_WRITER, "save_file(before | tensors, path)", "save_file(tensors | before, path)", WRITTEN, "nothing is new"),
    Fault(_WRITER, "numbers[begin : begin + size]", "numbers[:size]", WRITTEN, "all parts have those of the first"),
    Fault(_WRITER, "ends[:, None] - 1)", "len(ends) - 1)", WRITTEN, "chunks go on into the next episode"),
    Fault(
        _MIGRATION,
        '"pi05_libero": PublishedPi("physical-intelligence/libero", 10)',
        '"pi05_libero": PublishedPi("physical-intelligence/libero")',
        MIGRATION,
        "the horizon is that of pi-0",
    ),
    Fault(
        _MIGRATION,
        'if str(value).startswith("pi05") else',
        'if str(value).startswith("pi0") else',
        MIGRATION,
        "pi-0 becomes pi-0.5",
    ),
    Fault(
        _MIGRATION, "min(abs(run), size", "max(abs(run), size", MIGRATION, "more numbers are relative than there are"
    ),
    Fault(_MIGRATION, 'and variant == "pi0")', ")", MIGRATION, "the word means the same in all configurations"),
]
