"""``AppLauncher`` of Isaac Lab 2.3.0, as far as an adapter sees it."""

from __future__ import annotations

import sys
from typing import Any

APPS: list[App] = []


class App:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.is_closed = settings, False

    def close(self) -> None:
        self.is_closed = True


class AppLauncher:
    def __init__(self, launcher_args: Any = None, **settings: Any) -> None:
        assert launcher_args is None
        assert len(sys.argv) == 1, "Isaac Sim takes these arguments for its own"
        assert settings.keys() == {"headless", "enable_cameras", "device"}
        self.app = App(settings)
        APPS.append(self.app)
