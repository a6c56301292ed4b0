"""Writes tensors as ``.safetensors`` files, one tensor in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch

from rlinf.utils.files import fsync_path

MAX_FILE_BYTES = 5_000_000_000
"""Of a file's tensors: what Hugging Face's tools write at most."""
# Names of types in the format, https://huggingface.co/docs/safetensors/metadata_parsing.
_TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8


def write_tensor_files(
    folder: Path,
    described: Sequence[tuple[str, torch.Tensor]],
    tensors: Iterable[tuple[str, torch.Tensor]],
    *,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> None:
    """Write ``model.safetensors``, or several files and their index, as transformers names them, and flush them.

    Args:
        folder: Where to; made if it does not exist.
        described: Names, shapes and types of what ``tensors`` yields, in its order; on device ``meta``, say.
        tensors: Each is let go before the next one is taken.
        max_file_bytes: Of the tensors in one file; a larger tensor has a file to itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    groups = _groups(described, max_file_bytes)
    source = iter(tensors)
    weight_map: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        name = "model.safetensors"
        if len(groups) > 1:
            name = f"model-{number:05}-of-{len(groups):05}.safetensors"
        _write_file(folder / name, group, islice(source, len(group)))
        weight_map |= {tensor_name: name for tensor_name, _ in group}
    if len(groups) > 1:
        total = sum(tensor.nbytes for _, tensor in described)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        path = folder / "model.safetensors.index.json"
        path.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
        fsync_path(path)


def _groups(described: Sequence[tuple[str, torch.Tensor]], max_bytes: int) -> list[list[tuple[str, torch.Tensor]]]:
    groups: list[list[tuple[str, torch.Tensor]]] = [[]]
    num_bytes = 0
    for name, tensor in described:
        if groups[-1] and num_bytes + tensor.nbytes > max_bytes:
            groups.append([])
            num_bytes = 0
        groups[-1].append((name, tensor))
        num_bytes += tensor.nbytes
    return groups


def _write_file(
    path: Path, described: list[tuple[str, torch.Tensor]], tensors: Iterator[tuple[str, torch.Tensor]]
) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, tensor in described:
        end = begin + tensor.nbytes
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for (name, expected), (found_name, tensor) in zip(described, tensors, strict=True):
            if (found_name, tensor.shape, tensor.dtype) != (name, expected.shape, expected.dtype):
                raise ValueError(f"'{found_name}' is not '{name}' as described")
            file.write(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    fsync_path(path)
