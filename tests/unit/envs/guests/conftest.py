"""The fakes of simulators, for the tests of adapters."""

from guest_adapters import fakes

__all__ = ["fakes"]
