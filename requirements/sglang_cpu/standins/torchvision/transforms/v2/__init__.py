"""Names that SGLang and transformers import."""

from torchvision import make_missing


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return make_missing(name)
