"""Names that SGLang and transformers import."""

import enum

from torchvision import make_missing


class InterpolationMode(enum.Enum):
    """Ways to resize an image."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return make_missing(name)


from torchvision.transforms import functional  # noqa: E402, F401 - it imports the enumeration above
