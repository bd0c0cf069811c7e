"""Manifests for Kubernetes: a ``Job`` and Kubeflow's ``PyTorchJob``.

APIs: Kubernetes ``batch/v1`` 1.37, Kubeflow training operator ``kubeflow.org/v1`` 1.9.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats.file_text import block, yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launch_cloud import REQUIREMENTS
from tuneplan.formats.launching import PORT, Launch, across_nodes, torchrun
from tuneplan.language import Message, message

JOB_FILE: Final = "job.yaml"
PYTORCHJOB_FILE: Final = "pytorchjob.yaml"
_IMAGE: Final = "pytorch/pytorch:latest"
_RESOURCES: Final = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Intel": "habana.ai/gaudi"}
_WORK: Final = "/work"
_CONFIGURATION: Final = "/configuration"


def job_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``job.yaml``: a ConfigMap with the configuration, a Job, and for several machines a Service.

    The pods of an indexed Job know their rank (``JOB_COMPLETION_INDEX``) and, under a headless
    Service, the first one's name.
    """
    nodes, name = launch.num_nodes, launch.name
    line = torchrun(
        launch,
        across_nodes(launch, rank='"$JOB_COMPLETION_INDEX"', address=f"{name}-0.{name}"),
    )
    spec: dict[str, Any] = {"backoffLimit": 0}
    pod = {"restartPolicy": "Never", **_pod(launch, line, container="train")}
    documents = [_configuration(launch)]
    if nodes > 1:
        spec |= {"completions": nodes, "parallelism": nodes, "completionMode": "Indexed"}
        pod["subdomain"] = name
        documents.append(_service(launch))
    if launch.deadline_s is not None:
        spec["activeDeadlineSeconds"] = round(launch.deadline_s)
    documents.append(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {**spec, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}},
        }
    )
    return (_file(JOB_FILE, documents, _purpose(JOB_FILE)),)


def pytorchjob_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``pytorchjob.yaml``: a ConfigMap and a PyTorchJob.

    The operator sets ``MASTER_ADDR`` and ``RANK`` in every pod.
    """
    line = torchrun(launch, across_nodes(launch, rank='"$RANK"', address='"$MASTER_ADDR"'))
    template = {"spec": _pod(launch, line, container="pytorch")}
    replicas = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
    if launch.num_nodes > 1:
        replicas["Worker"] = {
            "replicas": launch.num_nodes - 1,
            "restartPolicy": "Never",
            "template": template,
        }
    policy: dict[str, Any] = {"backoffLimit": 0}
    if launch.deadline_s is not None:
        policy["activeDeadlineSeconds"] = round(launch.deadline_s)
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": launch.name},
        "spec": {
            "runPolicy": policy,
            "nprocPerNode": str(launch.accelerators_per_node),
            "pytorchReplicaSpecs": replicas,
        },
    }
    documents = [_configuration(launch), job]
    return (_file(PYTORCHJOB_FILE, documents, _purpose(PYTORCHJOB_FILE)),)


def _purpose(name: str) -> Message:
    return message(
        "purpose_kubernetes",
        "for kubectl apply -f {name}; the volume claim training-data holds data and results, and "
        "the image {image} is a placeholder: name your own",
        name=name,
        image=_IMAGE,
    )


def _file(name: str, documents: list[dict[str, Any]], purpose: Message) -> ExportedFile:
    told = message(
        "image_placeholder", "the image {image} is a placeholder: name your own", image=_IMAGE
    )
    text = "---\n".join(
        yaml_text((told if document is documents[-1] else None, document)) for document in documents
    )
    return ExportedFile(name=name, text=text, purpose=purpose)


def _configuration(launch: Launch) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{launch.name}-configuration"},
        "data": {name: block(text) for name, text in launch.files},
    }


def _service(launch: Launch) -> dict[str, Any]:
    """Headless: it gives the pods names to find each other by."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": launch.name},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": launch.name},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def _pod(launch: Launch, line: str, *, container: str) -> dict[str, Any]:
    """The pod without its restart policy, which a PyTorchJob sets beside it."""
    command = f"cp {_CONFIGURATION}/* . && pip install -r {REQUIREMENTS}\n{line}\n"
    amount = str(launch.accelerators_per_node)
    resource = _RESOURCES.get(launch.vendor, "nvidia.com/gpu")
    return {
        "containers": [
            {
                "name": container,
                "image": _IMAGE,
                "workingDir": _WORK,
                "command": ["bash", "-ec"],
                "args": [block(command)],
                "resources": {"limits": {resource: amount}},
                "volumeMounts": [
                    {"name": "configuration", "mountPath": _CONFIGURATION},
                    {"name": "data", "mountPath": _WORK},
                    {"name": "memory", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod
                ],
            }
        ],
        "volumes": [
            {"name": "configuration", "configMap": {"name": f"{launch.name}-configuration"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "training-data"}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
        ],
    }
