"""The dataclasses that recipes are parsed into: every key, its type, default, bounds and meaning, and nothing else.

Free of torch, Ray and simulators. A section that has several kinds (an environment, a model, an advantage, a loss) has
one dataclass per kind; ``rlinf.config.registries`` maps the discriminator's value to it.
"""
