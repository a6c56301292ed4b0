"""``tool_type: function``: a function of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf.agents.threads import UserFunction
from rlinf.agents.tools.base import Tool, ToolResult, ToolSchema
from rlinf.config.schema.agent import FunctionToolConfig
from rlinf.errors import AgentError
from rlinf.utils.optional import require
from rlinf.utils.user_functions import import_function


class FunctionTool(Tool):
    """Calls ``package.module:function``; its type hints and Google docstring become the schema.

    It may be ``async``. One that blocks or hangs holds up no other tool and no other episode.

    Args:
        name: See ``Tool``.
        cfg: See ``Tool``.

    Raises:
        ConfigError: There is no such function.
        AgentError: Its hints or its docstring do not describe all parameters.
    """

    cfg: FunctionToolConfig

    def __init__(self, name: str, cfg: FunctionToolConfig) -> None:
        super().__init__(name, cfg)
        function = import_function(cfg.function, f"agent.tools.{name}.function")
        self._function = UserFunction(function)
        transformers_utils = require("transformers.utils", needed_by="tool_type=function")
        try:
            schema = transformers_utils.get_json_schema(function)
        except Exception as error:  # of a parser of docstrings
            raise AgentError(
                f"agent.tools.{name}.function: {cfg.function} cannot be described to the model: {error}. Give it type "
                "hints, and a docstring with a line for each parameter below 'Args:'."
            ) from error
        self._schema = {**schema, "function": {**schema["function"], "name": name}}

    @property
    def schema(self) -> ToolSchema:
        """See ``Tool``."""
        return self._schema

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See ``Tool``: the text of what the function returns."""
        return ToolResult(str(await self._function(**arguments)))
