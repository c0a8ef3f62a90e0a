"""Write the first layers of a GGUF model to a file of its own: embeddings of a middle layer show more about a text.

The last layers of a language model are about the next word; what a text is about, and what it lacks, is clearest in the
middle. A server of llama.cpp gives the states of the last layer that its file has, so a file with fewer layers gives
those of a middle one, at a smaller cost.

    pip install gguf
    python benchmarks/cut_model.py model.gguf cut.gguf --layers 20
    llama-server --model cut.gguf --embeddings --pooling last
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

BLOCK = "blk."
"""How the name of a layer's tensor begins; its number follows."""


def cut(source: Path, target: Path, layers: int) -> None:
    """Write the first layers of a model to `target`.

    Raises:
        SystemExit: the package gguf is not installed, or the model has not so many layers.
    """
    try:
        from gguf import GGUFReader, GGUFValueType, GGUFWriter
    except ImportError as error:
        raise SystemExit("This needs the package gguf: pip install gguf") from error
    reader = GGUFReader(source)
    family = reader.fields["general.architecture"].contents()
    count = f"{family}.block_count"
    there = reader.fields[count].contents()
    if not 0 < layers < there:
        raise SystemExit(f"--layers {layers}: {source} has {there} layers; take fewer, and at least 1.")
    writer = GGUFWriter(target, family)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":  # The writer's own.
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind is GGUFValueType.ARRAY else None
        writer.add_key_value(name, layers if name == count else field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        if _find_layer(tensor) < layers:
            writer.add_tensor(tensor.name, tensor.data, raw_shape=tensor.data.shape, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _find_layer(tensor: Any) -> int:
    """Return the layer that a tensor belongs to; -1 for one of the whole model."""
    return int(tensor.name.split(".")[1]) if tensor.name.startswith(BLOCK) else -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, required=True, help="how many are kept; two thirds are a good start")
    chosen = parser.parse_args()
    cut(chosen.source, chosen.target, chosen.layers)


if __name__ == "__main__":
    main()
