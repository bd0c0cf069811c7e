import pytest

from runs.rows_for_tests import LITGPT, run_of
from tuneplan.runs.software import canonical_framework, software_of
from tuneplan.units import date_in


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("fms-hf-tuning/HF SFTTrainer + fms-acceleration", "fms-hf-tuning"),
        ("AnswerDotAI fsdp_qlora train.py", "fsdp_qlora"),
        ("llm-foundry (Composer, PyTorch FSDP)", "llm-foundry"),
        ("transformers Trainer + peft", "transformers"),
        ("transformers + peft (custom single step)", "custom"),
        ("peft custom loop (transformers)", "peft-loop"),
        ("ms-swift (megatron)", "megatron"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("LLaMA-Factory (fork)", "llamafactory"),
        ("trl==1.16", "trl"),
        ("Some new thing", "Some new thing"),
        ("", None),
    ],
)
def test_programs_are_known_under_the_words_of_tables(written, name):
    assert canonical_framework(written) == name


def test_versions_are_read_from_a_list_and_the_program_keeps_its_commit():
    software = software_of(run_of(LITGPT))
    assert software.framework == "litgpt"
    assert software.version == "8641822"
    assert dict(software.libraries) == {"torch": "2.1.0+cu121", "bitsandbytes": "0.41.1"}


def test_version_columns_win_over_the_free_column():
    run = run_of(framework_version="torch 2.1; bnb 0.42.0", bitsandbytes_version="0.43.3")
    assert dict(software_of(run).libraries) == {"torch": "2.1", "bitsandbytes": "0.43.3"}


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("Feb-Mar 2024", "2024-03"),
        ("v0.4 era (table added 2024-11-18)", "2024-11-18"),
        ("2022-02 (02-26)", "2022-02"),
        ("torch 2.4.1; transformers 4.45.2", None),
        ("", None),
    ],
)
def test_a_date_is_found_where_software_is_dated(text, date):
    assert date_in(text) == date


def test_a_date_alone_is_no_version():
    assert software_of(run_of(framework_version="Feb-Mar 2024")).version is None
    assert software_of(run_of(framework_version="2022-02 (02-26)")).version is None


def test_a_repository_that_ships_its_script_ran_it_at_the_commit_of_the_row():
    commit = "2df8e8ac450fa185c421a08b0090ef81826caa6e"
    run = run_of(
        framework="transformers Trainer + peft",
        framework_version="torch 2.0; CUDA 11.8",
        source_repo="QwenLM/Qwen",
        source_commit=commit,
    )
    software = software_of(run)
    assert (software.framework, software.version) == ("qwen", commit)
    assert software.libraries["torch"] == "2.0"


def test_other_repositories_ran_what_they_name():
    run = run_of(framework="transformers Trainer + peft", source_repo="someone/else")
    assert software_of(run).framework == "transformers"
