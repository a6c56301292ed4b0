"""A keyboard whose keys are held by the test."""

from typing import Any


class Listener:
    """Stands for the device: hands over what it would call."""

    def __init__(self, on_press: Any, on_release: Any) -> None:
        self.press, self.release, self.is_running = on_press, on_release, False

    def start(self) -> None:
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False
