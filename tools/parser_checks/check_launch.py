"""Launch files against the schema of what reads them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml
from answering import answer
from dstack._internal.core.models.configurations import parse_apply_configuration
from kubeflow.training import ApiClient, KubeflowOrgV1PyTorchJob
from sky.utils.schemas import get_task_schema

KUBERNETES = "1.37"


def accept_script(name: str) -> None:
    """``bash -n``."""
    found = subprocess.run(["bash", "-n", name], capture_output=True, text=True, check=False)
    if found.returncode:
        raise ValueError(found.stderr)


def accept_sky() -> None:
    """SkyPilot's JSON Schema of a task."""
    jsonschema.validate(yaml.safe_load(Path("sky.yaml").read_text()), get_task_schema())


def accept_dstack() -> None:
    """Dstack's own models."""
    parse_apply_configuration(yaml.safe_load(Path(".dstack.yml").read_text()))


def accept_manifest(name: str) -> None:
    """Kubernetes' JSON Schemas, strictly; a PyTorchJob by the operator's own client."""
    for document in yaml.safe_load_all(Path(name).read_text()):
        if document["kind"] != "PyTorchJob":
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
            continue
        client = ApiClient()
        response = type("Response", (), {"data": __import__("json").dumps(document)})
        read = client.deserialize(response, KubeflowOrgV1PyTorchJob)
        if client.sanitize_for_serialization(read) != document:
            raise ValueError("the operator's client drops or changes keys")
        for replica in document["spec"]["pytorchReplicaSpecs"].values():
            spec = {**replica["template"]["spec"], "restartPolicy": replica["restartPolicy"]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
            kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The launch files of a folder."""
    for path in sorted(folder.iterdir()):
        if path.suffix in (".sh", ".slurm"):
            yield path.name, partial(accept_script, path.name)
        elif path.name in ("job.yaml", "pytorchjob.yaml"):
            yield path.name, partial(accept_manifest, path.name)
        elif path.name == "sky.yaml":
            yield path.name, accept_sky
        elif path.name == ".dstack.yml":
            yield path.name, accept_dstack


answer(("skypilot", "dstack", "kubernetes-validate", "kubeflow-training"), files)
