"""The tools that make pages from folders of configurations, on folders of our own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
AXOLOTL = (ROOT / "examples" / "axolotl_chat.yml").read_text(encoding="utf-8")


def made_by(tool: str, *arguments: str | Path) -> str:
    command = [sys.executable, str(ROOT / "tools" / tool), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_table_of_formats_tells_what_became_of_every_key(tmp_path: Path) -> None:
    folder = tmp_path / "axolotl"
    folder.mkdir()
    (folder / "sound.yml").write_text(AXOLOTL)
    (folder / "odd.yml").write_text(AXOLOTL + "not_a_key_of_theirs: 3\n")
    (folder / "newer.yml").write_text(AXOLOTL.replace("Qwen2.5-7B-Instruct", "Qwen9-7B"))
    page = tmp_path / "page.md"
    made_by("formats_page.py", tmp_path, "--page", page)
    text = page.read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| axolotl | 3 | axolotl 3 |")]
    # keys: 3 x 18 and the odd one, of which 1 is not understood
    assert [cell.strip() for cell in row.split("|")][4] == "55"
    assert [cell.strip() for cell in row.split("|")][8] == "1"
    assert "| axolotl | `not_a_key_of_theirs` | 1 | `3` |" in text
    assert "`Qwen/Qwen9-7B`" in text
    assert str(tmp_path) not in text.replace(str(page), "")


def test_a_run_is_predicted_from_the_configuration_that_it_names(tmp_path: Path) -> None:
    name = "axolotl-ai-cloud__axolotl__examples__chat.yml"
    (tmp_path / name).write_text(AXOLOTL)
    runs = tmp_path / "runs.csv"
    runs.write_text(
        "id,source_repo,source_path,framework,model,gpu,num_gpus,method,lora_rank,lora_targets,"
        "seq_len,micro_batch_per_gpu,grad_accum,peak_mem_gb,mem_kind,mem_unit,oom,notes\n"
        "chat-1,axolotl-ai-cloud/axolotl,README.md,axolotl,Qwen/Qwen2.5-7B-Instruct,A100-80GB,1,"
        "lora,16,all-linear,2048,2,4,25.0,allocated,GB,no,config=examples/chat.yml\n"
        "chat-2,axolotl-ai-cloud/axolotl,README.md,axolotl,Qwen/Qwen2.5-7B-Instruct,A100-80GB,1,"
        "lora,16,all-linear,2048,2,4,25.0,allocated,GB,no,config=examples/elsewhere.yml\n"
    )
    page = tmp_path / "page.md"
    made_by("check_against_runs.py", runs, "--configs", tmp_path, "--page", page)
    text = page.read_text(encoding="utf-8")
    assert "| chat | peak_bytes | 1 |" in text
    assert (
        "| chat-1 | examples/chat.yml | 1 x A100-80GB | fits | ran | peak_bytes | 23.28 GiB" in text
    )
    assert "chat: 1" in text  # the run whose file is not at hand
