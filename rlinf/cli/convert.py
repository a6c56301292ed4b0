"""``rlinf convert``: checkpoints, Hugging Face folders and adapters, one into another, one tensor at a time."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.errors import CheckpointError, ConfigError
from rlinf.telemetry.rundir import CONFIG_FILE

if TYPE_CHECKING:
    from rlinf.config.schema.model import CausalLMConfig, ModelConfig
    from rlinf.hybrid_engines.train.weight_files import StoredWeights

_COPIED = ("*.json", "*.txt", "*.model", "*.jinja")
"""What a Hugging Face folder holds next to its weights."""
_NOT_COPIED = ("*.index.json", "adapter_config.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rlinf convert``."""
    parser.add_argument(
        "source",
        type=Path,
        help="a checkpoint (global_step_N), a Hugging Face folder, a .safetensors or .pt file, or Megatron-LM's "
        "checkpoint in its format torch_dist, with --like",
    )
    parser.add_argument("output", type=Path, help="folder to write; must not hold anything")
    parser.add_argument(
        "--to",
        choices=("hf", "checkpoint", "adapter"),
        help="a Hugging Face folder (default), a checkpoint of weights for runner.ckpt_path (default for a source that "
        "is a Hugging Face folder), or the adapter of a LoRA checkpoint in peft's layout",
    )
    parser.add_argument(
        "--like",
        type=Path,
        metavar="FOLDER",
        help="Hugging Face folder that configuration and tokenizer are copied from; by default the source, or what "
        "the run of the checkpoint started from",
    )
    parser.add_argument("--merge-adapter", type=Path, metavar="FOLDER", help="add an adapter of peft to the weights")
    parser.add_argument(
        "--dtype", choices=("fp32", "bf16", "fp16"), help="of floating-point weights; default: as they are"
    )
    parser.add_argument("--max-file-gb", type=float, default=5.0, metavar="GB", help="per file of weights; default 5")


def run(args: argparse.Namespace) -> int:
    """Convert.

    Returns:
        0.

    Raises:
        CheckpointError: The source holds no weights, or the output something.
        ConfigError: The run of a checkpoint is needed and not known.
        MissingPackageError: torch is not installed, or what an adapter's layout needs.
    """
    from rlinf.hybrid_engines.train.torch_dist import find_torch_dist, open_torch_dist
    from rlinf.hybrid_engines.train.weight_files import checkpoint_folder, open_weights, write_weights
    from rlinf.models.files.tensor_writer import write_tensor_files

    source, output = args.source, args.output
    if output.exists() and (output.is_file() or any(output.iterdir())):
        raise CheckpointError(f"'{output}' holds something already; name a folder that is empty or not there.")
    of_megatron = find_torch_dist(source)
    if of_megatron is not None and args.like is None:
        raise CheckpointError(f"'{source}' is a checkpoint of Megatron: name a folder with the model's config, --like.")
    is_checkpoint = checkpoint_folder(of_megatron or source) is not None
    target = args.to or ("hf" if is_checkpoint or args.merge_adapter else "checkpoint")
    weights = open_weights(source) if of_megatron is None else open_torch_dist(of_megatron, args.like)
    if target == "adapter":
        _write_adapter(source, output, weights)
    else:
        weights = _merged(args, weights)
        if target == "checkpoint":
            write_weights(output / "actor", weights)
        else:
            like = args.like or (_like(source) if is_checkpoint else source)
            described = list(weights.described.items())
            write_tensor_files(output, described, weights, max_file_bytes=int(args.max_file_gb * 1e9))
            _copy_settings(like, output, precision=str(described[0][1].dtype).removeprefix("torch."))
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print(f"{output}: {target}, {size / 1e9:.3f} GB")
    return 0


def _merged(args: argparse.Namespace, weights: StoredWeights) -> StoredWeights:
    """Return the weights as inference takes them: adapters added in, in the wanted precision."""
    from rlinf.hybrid_engines.inference_backends import DTYPES
    from rlinf.hybrid_engines.train.weight_files import as_adapter, of_model, with_adapter
    from rlinf.models.files.peft_folder import PeftAdapter
    from rlinf.models.lora import is_adapter

    if any(is_adapter(name) for name in weights.described):
        weights = with_adapter(weights, weights, _language_section(args.source).lora_scaling)
    if args.merge_adapter is not None:
        adapter = PeftAdapter(args.merge_adapter)
        weights = with_adapter(weights, as_adapter(adapter), adapter.alpha / adapter.rank)
    return of_model(weights, None if args.dtype is None else DTYPES[args.dtype])


def _write_adapter(source: Path, output: Path, weights: StoredWeights) -> None:
    from rlinf.config.schema.vla import VLAConfig
    from rlinf.models.files.peft_folder import write_adapter
    from rlinf.models.lora import is_adapter, is_within

    names = [name for name in weights.described if is_adapter(name)]
    if not names:
        raise CheckpointError(f"'{source}' holds no adapter: its run was without actor.model.is_lora.")
    model = _model_section(source)
    if isinstance(model, VLAConfig):
        names += [name for name in weights.described if is_within(name, model.lora_whole_modules)]
    else:
        model = _language_section(source)
    write_adapter(output, ((name, weights.read(name)) for name in names), model)


def _language_section(source: Path) -> CausalLMConfig:
    """Return ``actor.model`` of the run of a language model that a checkpoint is of."""
    from rlinf.config.schema.model import CausalLMConfig

    model = _model_section(source)
    if not isinstance(model, CausalLMConfig):
        raise ConfigError(
            f"'{source}' is of actor.model.model_type={model.model_type}, which is no language model. Use "
            "toolkits/vla/export_policy.py for policies."
        )
    return model


def _model_section(source: Path) -> ModelConfig:
    """Return ``actor.model`` of the run that a checkpoint is of."""
    from rlinf.config import load_recipe, validate_cfg

    files = (folder / CONFIG_FILE for folder in source.absolute().parents)
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        raise ConfigError(
            f"'{source}' lies in no folder of a run: there is no {CONFIG_FILE} above it. Leave checkpoints where their "
            "run wrote them, or name the model that it started from with --like."
        )
    return validate_cfg(load_recipe(str(file))).actor.model


def _like(source: Path) -> Path:
    from rlinf.models.language.model_path import find_model_folder

    return find_model_folder(_language_section(source).model_path)


def _copy_settings(like: Path, output: Path, *, precision: str) -> None:
    """Copy configuration and tokenizer; the precision of the weights becomes that of the files."""
    if not (like / "config.json").is_file():
        raise CheckpointError(f"'{like}' holds no config.json; name the folder of the model with --like.")
    for path in (path for pattern in _COPIED for path in like.glob(pattern)):
        if not any(path.match(pattern) for pattern in _NOT_COPIED):
            shutil.copyfile(path, output / path.name)
    file = output / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["torch_dtype" if "torch_dtype" in config else "dtype"] = precision
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
