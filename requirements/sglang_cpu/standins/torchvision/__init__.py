"""Stands in for torchvision, which SGLang imports for images even where a model takes text only.

The published torchvision belongs to other builds of PyTorch. requirements/install.sh puts this into SGLang's own
environment, and only where no torchvision is installed.
"""

__version__ = "0.0.0"


def make_missing(name: str) -> type:
    """Return a class that says, when it is used, that there is no torchvision."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(f"torchvision's {name} is not here: this environment serves text models only.")

    return type(name, (), {"__init__": refuse})
