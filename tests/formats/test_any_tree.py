"""Whatever stands in a configuration: a job, or an error for people; never anything else."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneplan.contract.reading import load_imported
from tuneplan.errors import InputError
from tuneplan.formats import (
    accelerate,
    deepspeed,
    evaluation_task,
    llamafactory,
    llamafactory_v1,
    trainer,
    trl,
)
from tuneplan.formats.carrying import leaves
from tuneplan.formats.foreign import Fate, ForeignDocument
from tuneplan.formats.fsdp import KNOWN as FSDP
from tuneplan.formats.hugging_face_keys import KNOWN as TRL
from tuneplan.formats.llamafactory_keys import KNOWN as LLAMAFACTORY
from tuneplan.formats.llamafactory_keys import REFUSED
from tuneplan.formats.reading import no_companions
from tuneplan.formats.trainer_keys import KNOWN as TRAINER

FORMATS = (trl, trainer, llamafactory, deepspeed, accelerate, evaluation_task)
WORDS = sorted(
    {
        *(name.rpartition(".")[2] for name in (*deepspeed.KNOWN, *accelerate.KNOWN)),
        *(*FSDP, *TRL, *LLAMAFACTORY, *TRAINER, *llamafactory_v1.KNOWN),
        *(name for name, _ in REFUSED),
        *("zero_optimization", "bf16", "fp16", "fsdp_config", "deepspeed_config", "training_args"),
        *("peft_config", "dist_config", "shell", "options", "environment", "scheduler", "program"),
        *("nproc_per_node", "nnodes", "include", "gres", "words", "launcher", "enabled", "device"),
        *("offload_param", "offload_optimizer", "parallelism_config", "env", "model"),
    }
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.integers(-2, 9)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        [
            *("auto", "none", "no", "lora", "full", "all-linear", "bf16", "fp16", "true", "cpu"),
            *("zero3.json", "full_shard auto_wrap", "adamw_torch", "AdamW", "FSDP", "DEEPSPEED"),
            *("steps", "1:4", "0,1", "gpu:8", "accelerate", "torchrun", "sft", "dpo", ".*proj"),
        ]
    )
)
TREES = st.recursive(
    st.dictionaries(st.sampled_from(WORDS), SCALARS, max_size=6),
    lambda inner: st.dictionaries(
        st.sampled_from(WORDS), SCALARS | st.lists(SCALARS, max_size=3) | inner, max_size=6
    ),
    max_leaves=12,
)


def _with_sections(path):
    """A key path and the sections around it, one of which may be closed as a whole."""
    while path:
        yield path
        path = path.rpartition(".")[0]


@pytest.mark.parametrize("module", FORMATS, ids=lambda module: module.NAME)
@given(tree=TREES, form=st.sampled_from(["yaml", "shell"]))
@settings(max_examples=30)
def test_any_tree_is_a_job_or_an_error_for_people(module, tree, form):
    document = ForeignDocument(tree=tree, file="any.yaml", form=form)
    assert 0 <= module.recognise(document) <= 1
    with contextlib.suppress(InputError):
        found = module.load(document, companion=no_companions, version=None)
        fates = {key.path for key in found.keys}
        assert all(fates & set(_with_sections(path)) for path, _ in leaves(tree))
        assert all(key.why is not None for key in found.keys if key.fate is not Fate.CARRIED)
        load_imported(found.job, origins={}, base_path=".")


@pytest.mark.parametrize("module", FORMATS, ids=lambda module: module.NAME)
@given(tree=TREES, other=TREES)
@settings(max_examples=15)
def test_any_file_that_another_points_to_is_read_or_an_error_for_people(module, tree, other):
    document = ForeignDocument(
        tree={**tree, "deepspeed": "other.json"}, file="any.yaml", form="yaml"
    )
    pointed_to = ForeignDocument(tree=other, file="other.json", form="json")
    with contextlib.suppress(InputError):
        found = module.load(document, companion=lambda _: pointed_to, version="0.1")
        assert found.files[0] == "any.yaml"
