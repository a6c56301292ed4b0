"""Faults of simulators in interpreters of their own: messages, chunk loop, processes and adapters."""

from __future__ import annotations

from tests.mutation.fault import Fault

_WIRE = ("tests/unit/envs/guests/test_guest_wire.py",)
_ROWS = ("tests/unit/envs/guests/test_rows_of_guests.py",)
_PROCESS = ("tests/unit/envs/test_guest_process.py",)
_CONFORMANCE = ("tests/unit/envs/test_guest_conformance.py",)
_REPLIES = ("tests/unit/envs/test_guest_replies.py",)
_SERVER = ("tests/unit/envs/guests/test_guest_server.py",)
_VERSIONS = ("tests/unit/envs/guests/test_guest_versions.py",)
_PUBLISHED = ("tests/unit/envs/guests/test_published_rlinf.py",)
_ENV = ("tests/unit/envs/simulators/test_guest_env.py",)
_TCP = ("tests/unit/envs/guests/test_guest_tcp.py",)
_LISTENER = ("tests/unit/envs/guests/test_guest_listener.py",)
_REMOTE = ("tests/unit/envs/test_guest_remote.py",)
_SETTINGS = ("tests/unit/envs/test_guest_settings.py",)
_SIMULATOR = ("tests/unit/envs/guests/test_rlinf_simulator.py",)
_EITHER = ("tests/unit/envs/simulators/test_simulator_vector.py",)
_ADAPTERS = {
    name: (f"tests/unit/envs/guests/test_{name}.py",)
    for name in ("robocasa", "robotwin", "isaaclab", "behavior", "habitat")
}


def _fault(file: str, before: str, after: str, tests: tuple[str, ...], what: str) -> Fault:
    return Fault(f"rlinf/envs/{file}", before, after, tests, what)


def _of_adapter(name: str, before: str, after: str, what: str) -> Fault:
    return _fault(f"guests/{name}.py", before, after, _ADAPTERS[name], what)


FAULTS: list[Fault] = [
    _fault(
        "guests/guest_wire.py",
        "    if size > len(shared):\n",
        "    if False:\n",
        _WIRE,
        "more is taken from shared memory than it has",
    ),
    _fault(
        "guests/guest_wire.py",
        "SHARED_BYTES < end[0] <= len(shared)",
        "SHARED_BYTES < end[0]",
        _WIRE,
        "arrays for which shared memory has no room are an error",
    ),
    _fault(
        "guest_process.py",
        "    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)\n",
        "",
        _PROCESS,
        "a guest makes the shared file shorter, and its host ends when it reads it",
    ),
    _fault(
        "guest_process.py",
        "        return [self._shared_fd]\n",
        "        return []\n",
        _PROCESS,
        "images go through the connection",
    ),
    _fault(
        "guests/guest_tcp.py",
        'if not hmac.compare_digest(proof, _proof(key, b"host", ours, theirs)):',
        "if not proof:",
        _TCP,
        "a guest serves every host",
    ),
    _fault(
        "guests/guest_tcp.py",
        'if not hmac.compare_digest(proof, _proof(key, b"guest", theirs, ours)):',
        "if not proof:",
        _TCP,
        "a host takes every guest",
    ),
    _fault(
        "guests/guest_tcp.py",
        "    ours = os.urandom(_NUMBER_BYTES)\n",
        "    ours = bytes(_NUMBER_BYTES)\n",
        _TCP,
        "a proof of a host that was overheard is taken again",
    ),
    _fault(
        "guests/guest_tcp.py",
        "greeting[len(_GREETING) :], os.urandom(_NUMBER_BYTES)",
        "greeting[len(_GREETING) :], bytes(_NUMBER_BYTES)",
        _TCP,
        "a proof of a guest that was overheard is taken again",
    ),
    _fault(
        "guests/guest_tcp.py",
        'hmac.new(key, who + b"\\0" + of_guest',
        "hmac.new(key, of_guest",
        _TCP,
        "a guest's proof is one of a host as well",
    ),
    _fault(
        "guests/guest_tcp.py",
        "connection.settimeout(max(deadline - time.monotonic(), 0.001))",
        "connection.settimeout(PROOF_SECONDS)",
        _TCP,
        "one that sends a byte now and then is waited for without a limit",
    ),
    _fault(
        "guests/guest_tcp.py",
        "part = connection.recv(size - len(found))",
        "part = connection.recv(2**20)",
        _TCP,
        "any number of bytes is read before a proof",
    ),
    _fault(
        "guests/guest_tcp.py",
        "            if Path(file).expanduser().stat().st_mode & 0o077:\n",
        "            if False:\n",
        _TCP,
        "others can read the key",
    ),
    _fault(
        "guests/guest_tcp.py", "    if len(key) < _SHORTEST_KEY:\n", "    if False:\n", _TCP, "an empty key is a key"
    ),
    _fault(
        "guests/guest_listener.py",
        "            return\n        finally:\n",
        "            pass\n        finally:\n",
        _LISTENER,
        "a host that was refused is served",
    ),
    _fault(
        "guests/guest_listener.py",
        "while guest.poll() is None and not gone.poll(_POLL_MILLISECONDS):",
        "while guest.poll() is None and gone.poll(_POLL_MILLISECONDS) is not None:",
        _LISTENER,
        "a guest goes on when its host has gone",
    ),
    _fault(
        "guests/guest_listener.py",
        "while guest.poll() is None and not gone.poll(_POLL_MILLISECONDS):",
        "while not gone.poll(_POLL_MILLISECONDS):",
        _LISTENER,
        "a host does not hear that its guest has ended",
    ),
    _fault(
        "guests/guest_server.py",
        'if content["adapter"] != self._adapter:',
        "if False:",
        _LISTENER,
        "a host has a guest load any module",
    ),
    _fault(
        "guest_remote.py",
        "                prove_as_host(connection, self.setup.key)\n",
        "                pass\n",
        _REMOTE,
        "a host reads what one says that has proved nothing",
    ),
    _fault(
        "guest_remote.py",
        "            notice_silence(connection)\n",
        "",
        _REMOTE,
        "a machine that is gone is waited for without a limit",
    ),
    _fault(
        "guest_conformance.py",
        '    raise ConformanceError("guest-key", f"{guest} takes a host that has another key.")\n',
        "    return\n",
        _CONFORMANCE,
        "a guest that takes every host conforms",
    ),
    _fault(
        "guest_settings.py",
        "        if value:\n",
        "        if False:\n",
        _SETTINGS,
        "a recipe names an interpreter that is not used",
    ),
    _fault(
        "guest_settings.py",
        "        if cfg.key_file is not None:\n",
        "        if False:\n",
        _SETTINGS,
        "a key that is not used is taken",
    ),
    _fault(
        "guests/rlinf_simulator.py",
        "return functools.partial(self._env.observe, raw), reward",
        "return self._env.observe(raw), reward",
        _SIMULATOR,
        "images are rendered where no one looks at them",
    ),
    _fault(
        "guests/rlinf_simulator.py",
        "**spec.kwargs, **next(own))",
        "**spec.kwargs, **(spec.row_kwargs or [{}])[0])",
        _SIMULATOR,
        "all environments have the first one's task",
    ),
    _fault(
        "guests/rlinf_simulator.py",
        '    load_package(folder, "rlinf")\n',
        "    sys.path.insert(0, str(folder.parent))\n",
        _SIMULATOR,
        "a guest sees the packages that lie beside its host's RLinf",
    ),
    _fault(
        "simulators/simulator_vector.py",
        "if name not in _OF_HOST}",
        'if name not in {*_OF_HOST, "image_size"}}',
        _EITHER,
        "keys of a section do not reach the guest",
    ),
    _fault(
        "simulators/simulator_vector.py",
        "        if self.cfg.guest is None:\n",
        "        if True:\n",
        _EITHER,
        "versions are those of an interpreter that lacks the simulator",
    ),
    _fault(
        "guests/guest_wire.py",
        "if offset + size > len(body):",
        "if False:",
        _WIRE,
        "an array reaches beyond its message",
    ),
    _fault(
        "guests/guest_wire.py",
        "if dtype is None or dtype.kind not in _KINDS or min([offset",
        "if dtype is None or min([offset",
        _WIRE,
        "arrays of objects are taken from a message",
    ),
    _fault(
        "guests/guest_wire.py",
        "offset = -(-end[0] // _ALIGNMENT) * _ALIGNMENT",
        "offset = end[0]",
        _WIRE,
        "arrays are not aligned",
    ),
    _fault(
        "guests/guest_wire.py",
        "memoryview(bytearray(body))",
        "memoryview(bytes(body))",
        _WIRE,
        "arrays are read-only",
    ),
    _fault(
        "guests/guest_wire.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        _REPLIES,
        "a header that is nested deeply is an error of Python's",
    ),
    _fault(
        "guests/guest_wire.py",
        "size = dtype.itemsize * functools.reduce(operator.mul, shape, 1)",
        "size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize",
        _REPLIES,
        "the size of an array overflows",
    ),
    _fault(
        "guests/guest_wire.py",
        "    if depth > MAX_DEPTH:\n",
        "    if False:\n",
        _WIRE,
        "lists may be nested without a limit",
    ),
    _fault(
        "guest_replies.py",
        "value.shape == shape and value.dtype == dtype",
        "value.dtype == dtype",
        _REPLIES,
        "arrays of any shape are taken for an answer",
    ),
    _fault(
        "guest_replies.py",
        "<= _LARGEST_ENTRY, f",
        "<= 2**99, f",
        _REPLIES,
        "a guest has its host allocate a space of any size",
    ),
    _fault(
        "guest_replies.py",
        "_require(bool((final_ids == ended).all()), f",
        "_require(True, f",
        _REPLIES,
        "rows that end are not those that the flags say",
    ),
    _fault(
        "guest_process.py",
        "return self.connection.recv_bytes(MAX_BYTES)",
        "return self.connection.recv_bytes()",
        _PROCESS,
        "the host allocates what a guest claims to send",
    ),
    _fault(
        "guest_process.py",
        "            _limit_stalls(self.connection.fileno())\n",
        "",
        _PROCESS,
        "the host waits for ever for the rest of a message",
    ),
    _fault(
        "guest_process.py",
        'self.progress = answer["progress"]',
        "pass",
        _PROCESS,
        "a slow simulator that goes on counts as one that is stuck",
    ),
    _fault(
        "guest_process.py",
        "if silence > _SILENT_HEARTBEATS * HEARTBEAT_SECONDS:",
        "if False:",
        _PROCESS,
        "a process that is stopped is said to work",
    ),
    _fault(
        "process_pool.py",
        "            limit = build_timeout_seconds or timeout_seconds\n",
        "            limit = timeout_seconds\n",
        _PROCESS,
        "building has no limit of its own",
    ),
    _fault(
        "process_pool.py",
        "        except TypeError:  # of a class that takes more than a text\n",
        "        except KeyError:\n",
        _PROCESS,
        "an error of a class that takes more than a text leaves the pool open",
    ),
    _fault(
        "guests/guest_server.py",
        "            self._work = None\n",
        "",
        _SERVER,
        "heartbeats come while nothing was asked",
    ),
    _fault(
        "guests/guest_server.py",
        "            self._rows.close()\n",
        "            pass\n",
        _SERVER,
        "simulators are not closed",
    ),
    _fault(
        "guests/guest_versions.py",
        'versions[package] = ""',
        "pass",
        _VERSIONS,
        "a package that is missing is not said",
    ),
    _fault(
        "guest_conformance.py",
        "            if _bytes(getattr(first, name)) != _bytes(getattr(second, name)):\n",
        "            if False:\n",
        _CONFORMANCE,
        "guests that depend on their process conform",
    ),
    _fault(
        "guest_conformance.py",
        'if kind != "error":',
        'if kind == "error":',
        _CONFORMANCE,
        "guests that refuse what is no request do not conform",
    ),
    _fault(
        "guest_conformance.py",
        "if str(guest) not in str(error) or seconds",
        "if seconds",
        _CONFORMANCE,
        "a guest's end may be told without its name",
    ),
    _fault(
        "guests/rows.py",
        "truncated = (truncated | (steps >= max_steps)) & ~terminated",
        "truncated = truncated | (steps >= max_steps)",
        _ROWS,
        "a step is both a termination and a truncation",
    ),
    _fault(
        "guests/rows.py",
        "terminated = terminated & (not ignores_terminations)",
        "terminated = terminated & True",
        _ROWS,
        "terminations end episodes that go on",
    ),
    _fault(
        "guests/rows.py",
        'chunk["executed"][:, column] = running',
        'chunk["executed"][:, column] = True',
        _ROWS,
        "actions after a done count as executed",
    ),
    _fault(
        "guests/rows.py",
        "            running = running & ~",
        "            running = running | ~",
        _ROWS,
        "rows go on after their episode ended",
    ),
    _fault(
        "guests/rows.py",
        'chunk["rewards"][running, column] = np.asarray(rewards)[running]',
        'chunk["rewards"][:, column] = np.asarray(rewards)',
        _ROWS,
        "rows at rest have rewards",
    ),
    _fault(
        "guests/rows.py",
        'self._reset(ended, request["next_seeds"][ended].tolist())',
        'self._reset(ended, request["next_seeds"].tolist())',
        _ROWS,
        "episodes start from seeds of other rows",
    ),
    _fault(
        "guest_process.py",
        "if name not in _HIDDEN}",
        "}",
        _PROCESS,
        "a guest imports the packages of its host",
    ),
    _fault(
        "guest_process.py", "if spoken != PROTOCOL:", "if False:", _PROCESS, "guests of another protocol are served"
    ),
    _fault(
        "guest_process.py",
        "if not self.connection.poll(self.setup.startup_timeout_seconds):",
        "if False:",
        _PROCESS,
        "the start of a guest waits without a limit",
    ),
    _fault(
        "guest_settings.py",
        "named = cfg.python or os.environ.get(PYTHON_VARIABLE)",
        "named = cfg.python",
        _ENV,
        "the variable that names the interpreter has no effect",
    ),
    _fault(
        "guests/published_rlinf.py",
        "            env.use_fixed_reset_state_ids = False\n",
        "",
        _PUBLISHED,
        "every epoch starts from the states of the first",
    ),
    _fault(
        "guests/published_rlinf.py",
        "            env._generator = np.random.default_rng(seed)\n",
        "            pass\n",
        _PUBLISHED,
        "the seed does not choose the start states",
    ),
    _fault(
        "guests/published_rlinf.py",
        "len(reports) >= num_steps or column == num_steps - 1",
        "True",
        _PUBLISHED,
        "the success of the whole chunk counts for its first action",
    ),
    _fault(
        "guests/published_rlinf.py",
        "**params, **_HOST_DECIDES}",
        "**_HOST_DECIDES, **params}",
        _PUBLISHED,
        "the published class resets and shapes rewards as well",
    ),
    _fault(
        "guests/published_rlinf.py",
        "place = max(column + len(observations) - num_steps, 0)",
        "place = 0",
        _PUBLISHED,
        "every action shows the first observation of the chunk",
    ),
    _fault(
        "guests/adapter_tools.py",
        "if name not in arguments)",
        "if False)",
        _ADAPTERS["robocasa"],
        "an option that does not exist is no error of its own",
    ),
    _fault(
        "guests/adapter_tools.py",
        "return np.array(value.detach().cpu().numpy()",
        "return np.asarray(value.detach().cpu().numpy()",
        _ADAPTERS["isaaclab"],
        "what a step returned changes with the next one",
    ),
    _fault(
        "guests/adapter_tools.py",
        "image = image[..., :3]",
        "pass",
        _ADAPTERS["behavior"],
        "images have a fourth channel",
    ),
    _fault(
        "guests/adapter_tools.py",
        "if image.dtype != np.uint8 or",
        "if",
        ("tests/unit/envs/guests/test_adapter_tools.py",),
        "numbers between 0 and 1 are shown as an image",
    ),
    _of_adapter("robocasa", ", upside_down=True", "", "images are upside down"),
    _of_adapter("robocasa", "np.where(action < 0.5, -1.0, 1.0)", "np.where(action > 0.5, -1.0, 1.0)", "grippers close"),
    _of_adapter(
        "robocasa", "self._env.rng = np.random.default_rng(seed)", "pass", "the seed does not choose the kitchen"
    ),
    _of_adapter("robocasa", "+ (-1.0,)", "+ (0.0,)", "the base is neither held nor moved"),
    _of_adapter("robocasa", "taken[self._places] = ", "taken[: len(action)] = ", "parts are those before"),
    _of_adapter("robocasa", '"gripper": (6, 7)', '"gripper": (11, 12)', "the gripper switches the base's mode"),
    _of_adapter("robocasa", "bool(self._env._check_success())", "bool(obs is None)", "success is never reported"),
    _of_adapter("robocasa", "if split != _SPLIT:", "if False:", "a robot with another action is driven"),
    _of_adapter(
        "robotwin",
        "            except self._unstable:\n                continue\n",
        "            except self._unstable:\n                pass\n",
        "an episode begins while objects fall",
    ),
    _of_adapter("robotwin", "            self._task.step_lim = None\n", "", "RoboTwin cuts episodes off as well"),
    _of_adapter("robotwin", "action_type=self._action_type)\n", ")\n", "poses are taken for joints"),
    _of_adapter(
        "robotwin",
        'np.stack([images["left"], images["right"]])',
        'np.stack([images["right"], images["left"]])',
        "wrists are swapped",
    ),
    _of_adapter(
        "robotwin", "bool(self._task.eval_success)", "bool(self._task.check_success)", "every action is a success"
    ),
    _of_adapter("robotwin", "chosen[1 if len(chosen) > 1 else 0]", "chosen[0]", "both arms are the left one's robot"),
    _of_adapter("robotwin", "self._num_resets % _CACHE_RESETS == 0", "False", "SAPIEN's cache grows for ever"),
    _of_adapter(
        "isaaclab", "        self._leave_resets_to_host()\n", "", "ended environments are reset before they are seen"
    ),
    _of_adapter("isaaclab", " & terminations\n", "\n", "the success of an episode counts for the next one, too"),
    _of_adapter("isaaclab", "seed=seeds[index]", "seed=seeds[0]", "all rows start from one seed"),
    _of_adapter(
        "isaaclab", "np.where(active[:, None], actions, 0.0)", "np.asarray(actions)", "rows at rest are pushed on"
    ),
    _of_adapter("isaaclab", "2 * np.arctan2(sine", "np.arctan2(sine", "rotations are half as far"),
    _of_adapter("isaaclab", "    sys.argv = sys.argv[:1]\n", "", "Isaac Sim takes the guest's descriptors for its own"),
    _of_adapter(
        "isaaclab",
        "as_array(terminated)\n",
        "as_array(terminated) | as_array(truncated)\n",
        "a time limit is a termination",
    ),
    _of_adapter(
        "behavior",
        "np.asarray(action, np.float32)",
        "np.asarray(action, np.float32)[::-1]",
        "parts of the action are swapped",
    ),
    _of_adapter("behavior", "    gc.enable()\n", "", "scenes are never freed"),
    _of_adapter(
        "behavior",
        '["max_steps"] = _NO_LIMIT',
        '.setdefault("max_steps", _NO_LIMIT)',
        "the activity's own time is up first",
    ),
    _of_adapter("behavior", "if og.sim is not None:", "if False:", "a second environment is built in one simulator"),
    _of_adapter(
        "behavior", "        self._torch.manual_seed(seed)\n", "", "the seed does not reach what torch samples"
    ),
    _of_adapter(
        "behavior",
        "return answer[0] if isinstance(answer, list) else answer",
        "return answer",
        "newer sources are not understood",
    ),
    _of_adapter("behavior", "automatic_reset=False, ", "", "the simulator resets by itself"),
    _of_adapter(
        "habitat",
        '("stop", "move_forward", "turn_left", "turn_right")',
        '("stop", "move_forward", "turn_right", "turn_left")',
        "left is right",
    ),
    _of_adapter("habitat", "np.argmax(action)", "np.argmax(np.abs(action))", "what is least wanted is executed"),
    _of_adapter("habitat", "self._distance - distance if", "distance - self._distance if", "the way back is rewarded"),
    _of_adapter("habitat", "        self._distance = distance\n", "", "the way is rewarded again with every action"),
    _of_adapter("habitat", "if self._env.episode_over:", "if False:", "actions after a stop are refused by Habitat"),
    _of_adapter("habitat", '    "habitat.environment.max_episode_steps=0",\n', "", "Habitat cuts episodes off as well"),
    _of_adapter("habitat", "SUCCESS_METRES = 3.0", "SUCCESS_METRES = 0.2", "success is that of another task"),
    _of_adapter("habitat", "seed % len(self._env.episodes)", "0", "every seed is the first episode"),
    _of_adapter(
        "habitat", '"spl" if weight_by_path else "success"', '"success"', "detours are rewarded as the shortest way"
    ),
]
