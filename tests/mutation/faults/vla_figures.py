"""Faults of what the benchmark of vision-language-action policies counts."""

from __future__ import annotations

from tests.mutation.fault import Fault

FIGURES = "tests/unit/repository/test_vla_figures.py"
MEMORY, LAYERS, SIZES = (f"benchmarks/vla_{name}.py" for name in ("memory", "layers", "sizes"))
COUNTED = (f"{FIGURES}::test_what_a_pass_keeps_is_what_a_hand_counts",)

FAULTS: list[Fault] = [
    Fault(
        MEMORY,
        "            seen.add(storage.data_ptr())\n",
        "",
        COUNTED,
        "what two operations keep counts twice",
    ),
    Fault(
        MEMORY,
        "    seen = {tensor.untyped_storage().data_ptr() for tensor in known}\n",
        "    seen = set[int]()\n",
        COUNTED,
        "weights count as activations",
    ),
    Fault(
        MEMORY,
        "        within.pop()\n",
        "        del _\n",
        COUNTED,
        "what follows a layer counts as its own",
    ),
    Fault(
        MEMORY,
        "stack.layers[-stack.kinds :]) / stack.kinds",
        "stack.layers[: stack.kinds]) / stack.kinds",
        (f"{FIGURES}::test_few_layers_say_what_many_take", f"{FIGURES}::test_layers_that_take_turns_are_averaged"),
        "what all layers share counts for each of them",
    ),
    Fault(
        MEMORY,
        "            del unit.forward\n",
        "            pass\n",
        (f"{FIGURES}::test_recomputed_layers_keep_what_they_are_given",),
        "layers are recomputed for ever",
    ),
    Fault(
        MEMORY,
        "for p in policy.parameters() if p.requires_grad) / 1e6",
        "for p in policy.parameters()) / 1e6",
        (f"{FIGURES}::test_gradients_and_moments_are_those_of_what_is_trained",),
        "frozen weights have gradients",
    ),
    Fault(
        LAYERS,
        "layer: calls[layer] * seconds(",
        "layer: seconds(",
        (f"{FIGURES}::test_a_layers_update_counts_every_call_and_all_kinds",),
        "a tower's update has one image",
    ),
    Fault(
        SIZES,
        '"num_hidden_layers": repeats or 27, "image_size": 224',
        '"num_hidden_layers": repeats or 26, "image_size": 224',
        (f"{FIGURES}::test_truncated_models_have_the_layers_of_the_published_ones",),
        "pi-0's tower is a layer short",
    ),
]
