"""OOM: a log alone, a log with the job, a file."""

import json

from tuneplan.contract.reading import load_job
from tuneplan.diagnosis.oom_text import read_log
from tuneplan.planner.importing import Configuration
from tuneplan.planner.oom import diagnose, diagnose_log
from tuneplan.planner.sources import sources_for
from tuneplan.report.oom_answer import oom_answer
from web.asking import DAY, Elements, client

LOG = """\
{'loss': 1.9, 'grad_norm': 0.5, 'epoch': 0.01}
Traceback (most recent call last):
  File "train.py", line 10, in <module>
    trainer.train()
  File "torch/nn/functional.py", line 3053, in cross_entropy
    return torch._C._nn.cross_entropy_loss(input, target, weight)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total \
capacity of 22.03 GiB of which 1.10 GiB is free. Of the allocated memory 19.80 GiB is allocated \
by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.
"""
JOB = "model=Qwen/Qwen2.5-7B-Instruct&method=lora&gpu=NVIDIA+L4&count=1&max_length=4096"


def test_a_log_alone_is_answered_as_by_the_command():
    answered = client().post("/api/oom", json={"text": LOG})
    assert answered.status_code == 200
    expected = oom_answer(diagnose_log(read_log(LOG, 1)), as_of=DAY.isoformat())
    assert answered.json() == json.loads(expected.model_dump_json())


def test_with_the_job_fixes_have_sizes_and_prices():
    answered = client().post(f"/api/oom?{JOB}", json={"text": LOG})
    assert answered.status_code == 200
    job = load_job(
        {
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "method": "lora",
            "training": {"max_length": 4096},
            "hardware": {"accelerator": "NVIDIA L4", "accelerators_per_node": 1},
        }
    )
    configuration = Configuration(job=job, imported=None, files=())
    found = diagnose(configuration, sources_for(job, today=DAY), log=read_log(LOG, 1))
    assert answered.json() == oom_answer(found, as_of=DAY.isoformat()).model_dump(mode="json")


def test_the_page_says_what_ran_out_and_shows_the_card():
    asking = client()
    sent = asking.post("/oom", data={"text": LOG}, follow_redirects=False)
    assert sent.status_code == 303
    page = Elements(asking.get(sent.headers["location"]).text)
    assert page.one("figure", **{"data-chart": "card"})
    assert page.one("section", id="fixes")
    assert "2.32 GiB" in page.text
    assert "torch.OutOfMemoryError" in page.text  # still in the box


def test_a_file_is_read_as_text_whatever_it_holds():
    harmful = b"\x80\x04cos\nsystem\n(S'touch /tmp/never'\ntR." + bytes(range(256))
    answered = client().post("/api/oom", files={"file": ("snapshot.pickle", harmful)})
    assert answered.status_code == 200
    assert answered.json()["cause"] is None


def test_lines_of_the_end_of_a_long_log_are_counted_from_its_start():
    long = "step 1 | loss: 2.0\n" * 300_000 + LOG
    answered = client().post("/api/oom", files={"file": ("train.log", long.encode())})
    assert answered.status_code == 200
    assert answered.json()["message"]["line"] == 300_000 + LOG.count("\n")


def test_a_job_without_a_log_is_judged_by_its_estimate():
    answered = client().get(f"/api/oom?{JOB}")
    assert answered.status_code == 200
    assert answered.json()["message"] is None


def test_nothing_to_diagnose_is_said():
    assert client().get("/oom").status_code == 200
    answered = client().get("/api/oom")
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "nothing_to_diagnose"
