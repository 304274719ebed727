"""Writes the software bill of materials of a release, as CycloneDX 1.6 in JSON.

    make_sbom.py WHEEL... >mlc_native.cdx.json

It lists the wheels with their digests; whose code is compiled into their libraries, with the
versions that this environment builds with; and what each wheel requires, with the range of
versions. Two runs over the same wheels write the same bytes: the time is SOURCE_DATE_EPOCH, and the
serial number is made of the digests.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import uuid
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata
from packaging.requirements import Requirement

# Whose code is in the libraries, as in THIRD_PARTY_NOTICES.txt: distribution, license, where.
COMPILED_IN = [
    ("nanobind", "BSD-3-Clause", "mlc_native/_core"),
    ("nlohmann-json", "MIT", "the libraries in mlc_native/lib"),
    ("apache-tvm-ffi", "Apache-2.0", "mlc_native/lib/libmlc_native_grammar.so and its worker"),
    ("Cython", "Apache-2.0", "mlc_native/_stream_bridge and mlc_native/_text_event"),
]


def purl(name: str, version: str = "") -> str:
    name = re.sub(r"[-_.]+", "-", name).lower()
    return f"pkg:pypi/{name}" + (f"@{version}" if version else "")


def compiled_in() -> list[dict[str, Any]]:
    """The components whose code the libraries contain."""
    components = []
    for name, license_id, where in COMPILED_IN:
        version = importlib.metadata.version(name)
        components.append(
            {
                "type": "library",
                "bom-ref": purl(name, version),
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": license_id}}],
                "purl": purl(name, version),
                "properties": [{"name": "mlc_native:compiled-into", "value": where}],
            }
        )
    components.append(robin_map())
    components.append(static_runtime())
    return components


def robin_map() -> dict[str, Any]:
    """tsl::robin_map, which nanobind has a copy of; its header says the version."""
    (folder,) = (importlib.util.find_spec("nanobind")).submodule_search_locations  # type: ignore
    text = next(Path(folder).rglob("robin_growth_policy.h")).read_text()
    numbers = re.findall(r"define TSL_RH_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text)
    version = ".".join(numbers) or "unknown"
    return {
        "type": "library",
        "bom-ref": f"tsl-robin-map@{version}",
        "name": "tsl::robin_map",
        "version": version,
        "licenses": [{"license": {"id": "MIT"}}],
        "properties": [{"name": "mlc_native:compiled-into", "value": "mlc_native/_core"}],
    }


def static_runtime() -> dict[str, Any]:
    """The parts of libstdc++ that older systems lack: csrc/cmake/baseline/make_baseline.py."""
    done = subprocess.run(
        ["g++", "-dumpfullversion"], stdout=subprocess.PIPE, text=True, check=True
    )
    version = done.stdout.strip()
    return {
        "type": "library",
        "bom-ref": f"libstdc++@{version}",
        "name": "libstdc++",
        "version": version,
        "licenses": [{"expression": "GPL-3.0-or-later WITH GCC-exception-3.1"}],
        "properties": [
            {"name": "mlc_native:compiled-into", "value": "all libraries, newer parts only"}
        ],
    }


def metadata_of(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Metadata.from_email(archive.read(name), validate=False)


def requirements(metadata: Metadata) -> list[dict[str, Any]]:
    """What pip installs with a wheel, one component for each; extras are named."""
    components = {}
    for required in map(Requirement, map(str, metadata.requires_dist or [])):
        reference = purl(required.name)
        properties = [{"name": "mlc_native:versions", "value": str(required.specifier) or "any"}]
        if required.marker is not None:
            properties.append({"name": "mlc_native:if", "value": str(required.marker)})
        components[reference] = {
            "type": "library",
            "bom-ref": reference,
            "name": required.name,
            "purl": reference,
            "scope": "required" if required.marker is None else "optional",
            "properties": properties,
        }
    return list(components.values())


def bill_of_materials(wheels: list[Path]) -> dict[str, Any]:
    """The document; the first wheel says the version of the release."""
    release = metadata_of(wheels[0])
    version = str(release.version)
    digests = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    own = {purl(str(metadata_of(wheel).name)) for wheel in wheels}
    files: list[dict[str, Any]] = [
        {
            "type": "file",
            "bom-ref": name,
            "name": name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for name, digest in sorted(digests.items())
    ]
    required = {c["bom-ref"]: c for w in wheels for c in requirements(metadata_of(w))}
    needed = [c for reference, c in sorted(required.items()) if reference not in own]
    inside = compiled_in()
    identity = purl("mlc_native", version)
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(digests, sort_keys=True)).urn,
        "version": 1,
        "metadata": {
            "timestamp": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": identity,
                "name": "mlc_native",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": identity,
            },
        },
        "components": [*files, *inside, *needed],
        "dependencies": [
            {"ref": identity, "dependsOn": sorted(c["bom-ref"] for c in [*inside, *needed])}
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    print(json.dumps(bill_of_materials(parser.parse_args().wheels), indent=2))


if __name__ == "__main__":
    main()
