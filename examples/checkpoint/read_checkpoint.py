"""Read the newest checkpoint of a run: read_checkpoint(run_dir) -> (cycle, shared values, {shard: {name: array}})."""

import hashlib
import io
import json
from pathlib import Path

import h5py


def read_checkpoint(run_dir):
    folder = Path(run_dir) / "checkpoints"
    newest = max(p for p in folder.iterdir() if p.name.isdigit())
    manifest = json.loads((newest / "MANIFEST.json").read_text())
    if manifest["format"] != "mpibayes-checkpoint" or manifest["version"] != 4:
        raise ValueError(f"{newest}: another format, {manifest['format']} {manifest['version']}")

    def contents(entry):
        data = (newest / entry["file"]).read_bytes()
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ValueError(f"{newest / entry['file']}: damaged")
        return h5py.File(io.BytesIO(data), "r")

    def arrays(group):
        found = {}

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = item[()]

        group.visititems(visit)
        return found

    with contents(manifest["shared"]) as file:
        shared = json.loads(file["json"].asstr()[()]) | arrays(file["arrays"])
    shards = {}
    for part in manifest["parts"]:
        with contents(part) as file:
            shards |= {i: arrays(file[f"shard-{i}"]) for i in part["shards"]}
    return manifest["cycle"], shared, shards
