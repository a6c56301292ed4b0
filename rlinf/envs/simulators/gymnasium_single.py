"""``gymnasium.Env`` as a ``SingleEnv``, and the factory behind ``env_type: gymnasium``; imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import GymnasiumEnvConfig
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.single_env import SingleStep
from rlinf.errors import ConfigError
from rlinf.registry import did_you_mean


class GymnasiumSingleEnv:
    """One ``gymnasium.Env``; images become ``main_images``, any other observation is flattened into ``states``.

    Args:
        env: The environment.
        success_key: Key of the step's info that says whether the task is solved.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, success_key: str = "success") -> None:
        self._env = env
        self._success_key = success_key
        self._space = env.observation_space
        self._is_image = _is_image(self._space)
        self._is_vector = isinstance(self._space, gymnasium.spaces.Box)
        self.action_space = env.action_space
        if self._is_image:
            seen = {"main_images": gymnasium.spaces.Box(0, 255, self._space.shape, np.uint8)}
        else:
            size = int(gymnasium.spaces.flatdim(self._space))
            seen = {"states": gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)}
        self.observation_space = gymnasium.spaces.Dict(seen)

    def reset(self, seed: int) -> Any:
        """Start an episode seeded by ``seed``; return the observation."""
        return self._env.reset(seed=seed)[0]

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""
        obs, reward, terminated, truncated, info = self._env.step(action)
        success = info.get(self._success_key)
        return obs, float(reward), bool(terminated), bool(truncated), None if success is None else bool(success)

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return ``main_images``, uint8 [H, W, 3], or ``states``, float32 [S]."""
        if self._is_image:
            return {"main_images": np.asarray(raw)}
        flat: npt.NDArray[Any] = np.asarray(raw) if self._is_vector else gymnasium.spaces.flatten(self._space, raw)
        return {"states": flat.astype(np.float32).reshape(-1)}

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        frame = self._env.render()
        return None if frame is None else np.asarray(frame, dtype=np.uint8)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _is_image(space: gymnasium.Space[Any]) -> bool:
    """Whether observations are uint8 [H, W, 3]."""
    is_bytes = isinstance(space, gymnasium.spaces.Box) and space.dtype == np.uint8
    return is_bytes and space.shape is not None and len(space.shape) == 3 and space.shape[-1] == 3


def make_gymnasium_env(
    *,
    render: bool,
    init_params: dict[str, Any],
    import_module: str | None,
    success_key: str,
    kind: type[GymnasiumSingleEnv] = GymnasiumSingleEnv,
) -> GymnasiumSingleEnv:
    """Build a registered environment.

    Args:
        render: Whether it has to render images.
        init_params: Arguments of ``gymnasium.make``, among them ``id``.
        import_module: Module to import first.
        success_key: Key of the step's info that says whether the task is solved.
        kind: What it is wrapped into.

    Raises:
        ConfigError: See ``check_registered``.
    """
    check_registered(init_params, import_module)
    params = dict(init_params)
    env_id = params.pop("id")
    if render:
        params["render_mode"] = "rgb_array"
    # The checkers cost a tenth of a light environment's step; check_vector_env makes the same checks once.
    params.setdefault("disable_env_checker", True)
    return kind(gymnasium.make(env_id, **params), success_key=success_key)


def check_registered(init_params: Mapping[str, Any], import_module: str | None) -> None:
    """Check that an environment can be named so; builds nothing.

    Args:
        init_params: Arguments of ``gymnasium.make``, among them ``id``.
        import_module: Module to import first.

    Raises:
        ConfigError: No such environment is registered, ``init_params`` has no id, or the module cannot be imported.
    """
    if import_module is not None:
        try:
            importlib.import_module(import_module)
        except ImportError as error:
            raise ConfigError(
                f"env.*.import_module: cannot import '{import_module}' ({error}). Name an installed module that "
                "registers the environment, or null."
            ) from error
    env_id = init_params.get("id")
    if env_id is None:
        raise ConfigError(
            f"env.*.init_params: 'id' is missing (got {sorted(init_params)}); for example id: CartPole-v1."
        )
    # Gymnasium takes "module:id", and an id without its version for the newest.
    newest = {known.rpartition("-v")[0] for known in gymnasium.registry}
    if ":" not in str(env_id) and env_id not in {*gymnasium.registry, *newest}:
        raise ConfigError(
            f"env.*.init_params.id: no environment '{env_id}' is registered."
            f"{did_you_mean(str(env_id), sorted(gymnasium.registry))} If a package registers it, name its module in "
            "env.*.import_module."
        )


def check_gymnasium(cfg: GymnasiumEnvConfig) -> None:
    """See ``check_registered``."""
    check_registered(cfg.init_params, cfg.import_module)
