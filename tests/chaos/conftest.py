from tests.e2e.conftest import start_run

__all__ = ["start_run"]
