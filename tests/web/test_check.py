"""Check: a configuration that is pasted or dropped; what was read, the verdict, going on."""

import json

import pytest

from tuneplan.planner.check import check_configuration
from tuneplan.planner.importing import read_configuration, read_configuration_text
from tuneplan.planner.sources import sources_for
from tuneplan.report.check_answer import check_answer
from web.asking import DAY, Elements, client

LLAMAFACTORY = """\
### model
model_name_or_path: Qwen/Qwen2.5-7B-Instruct

### method
stage: sft
do_train: true
finetuning_type: lora
lora_target: all

### dataset
dataset: our_chats
template: qwen
cutoff_len: 2048

### train
per_device_train_batch_size: 2
bf16: true
warmup_stepz: 3
"""
CARD = "gpu=NVIDIA+L4&count=1"


def pasted(query: str = CARD, *, text: str = LLAMAFACTORY, asking=None):
    asking = asking or client()
    sent = asking.post(f"/check?{query}", data={"text": text}, follow_redirects=False)
    assert sent.status_code == 303
    return asking, sent.headers["location"]


def test_the_json_is_that_of_the_command(tmp_path):
    file = tmp_path / "train.yaml"
    file.write_text(LLAMAFACTORY)
    flags = {"hardware.accelerator": "NVIDIA L4", "hardware.accelerators_per_node": 1}
    configuration = read_configuration(file, overrides=flags)
    check = check_configuration(configuration, sources_for(configuration.job, today=DAY))
    expected = check_answer(check, as_of=DAY.isoformat()).model_dump(mode="json")
    body = {"text": LLAMAFACTORY, "file_name": "train.yaml", "gpu": "NVIDIA L4", "count": 1}
    answered = client().post("/api/check", json=body)
    assert answered.status_code == 200
    plain = json.loads(answered.text.replace("train.yaml", str(file)))
    assert plain == expected


def test_what_does_not_fit_has_no_duration_and_no_bill_at_a_glance():
    full = LLAMAFACTORY.replace("finetuning_type: lora", "finetuning_type: full")
    query = "gpu=NVIDIA+L40S&count=1&samples=1000&mean_tokens=500"
    shown = {}
    for text in (LLAMAFACTORY, full):
        asking, address = pasted(query, text=text)
        glance, _, rest = asking.get(address).text.partition('id="time"')
        shown[text] = ("<dt>Cost</dt>" in glance, rest.count("figures that it would have"))
    assert shown == {LLAMAFACTORY: (True, 0), full: (False, 2)}


@pytest.fixture(scope="module")
def page() -> Elements:
    """A configuration with markup in it, in another language."""
    text = LLAMAFACTORY + "'<script>alert(1)</script>': '{{ 7*7 }}'\n"
    asking, address = pasted(f"{CARD}&samples=1000&mean_tokens=400", text=text)
    answered = asking.get(f"{address}&lang=zh-TW")
    assert answered.status_code == 200
    assert "<script>alert(1)" not in answered.text
    return Elements(answered.text)


def test_what_was_read_the_verdict_and_what_is_wrong_stand_on_the_page(page):
    for name in ("summary", "remarks", "keys", "memory"):
        assert page.one("section", id=name)
    assert "LLaMA-Factory" in page.text
    assert "warmup_stepz" in page.text
    assert "our_chats" in page.text


def test_the_pasted_text_stays_in_its_box_in_another_language_too(page):
    assert page.one("html")["lang"] == "zh-TW"
    assert "model_name_or_path: Qwen/Qwen2.5-7B-Instruct" in page.text


def test_markup_in_a_configuration_stays_text(page):
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text


def test_the_job_opens_in_the_other_views(page):
    links = [str(one["href"]) for one in page.all("a") if "max_length=2048" in str(one["href"])]
    fit = next(link for link in links if link.startswith("/fit?"))
    answered = client().get(fit)
    assert answered.status_code == 200
    opened = Elements(answered.text)
    assert opened.one("input", id="model")["value"] == "Qwen/Qwen2.5-7B-Instruct"
    assert opened.one("input", id="micro_batch")["value"] == "2"
    assert not [link for link in links if "headroom" in link]  # nothing that nobody stated


def test_files_that_point_to_each_other_are_dropped_together():
    script = "llamafactory-cli train train.yaml\n"
    files = [
        ("file", ("run.sh", script.encode())),
        ("file", ("train.yaml", LLAMAFACTORY.encode())),
    ]
    answered = client().post(f"/api/check?{CARD}", files=files)
    assert answered.status_code == 200, answered.text
    assert answered.json()["job"]["training"]["max_length"] == 2048
    alone = client().post(f"/api/check?{CARD}", files=files[:1])
    assert alone.status_code == 400
    assert "train.yaml" in alone.json()["errors"][0]["message"]


def test_a_pasted_launch_line_is_read_as_one():
    line = (
        "swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora \\\r\n"
        "  --max_length 1024 --per_device_train_batch_size 1\r\n"
    )
    answered = client().post("/api/check", json={"text": line, "gpu": "NVIDIA L4"})
    assert answered.status_code == 200, answered.text
    assert answered.json()["format"] == "ms-swift"
    assert answered.json()["job"]["training"]["max_length"] == 1024


def test_mistakes_bear_the_lines_of_the_pasted_text():
    wrong = LLAMAFACTORY.replace("cutoff_len: 2048", "cutoff_len: long")
    answered = client().post("/api/check", json={"text": wrong, "file_name": "train.yaml"})
    assert answered.status_code == 400
    (mistake,) = answered.json()["errors"]
    assert mistake["line"] == wrong.splitlines().index("cutoff_len: long") + 1
    asking, address = pasted(text=wrong)
    page = asking.get(address)
    assert page.status_code == 400
    assert "cutoff_len: long" in page.text  # to be mended where it stands


@pytest.mark.parametrize(
    "text",
    [
        "model: /etc\ntraining: {max_length: 512}\n",
        "model: 7B\ndata: {path: /etc/passwd}\n",
        "model: 7B\ndata: {profile: ../../x.json}\n",
        "model: 7B\nprices: [/etc/passwd]\n",
        "model: 7B\nmodels: [/etc/models.yaml]\n",
        "model: 7B\naccelerators: [~/x.toml]\n",
    ],
)
def test_a_pasted_text_names_no_file_outside_the_allowed_folders(text, tmp_path):
    answered = client(tmp_path).post("/api/check", json={"text": text})
    assert answered.status_code == 400
    assert {one["code"] for one in answered.json()["errors"]} == {"path_not_allowed"}


def test_nothing_to_check_is_said():
    assert client().get("/check").status_code == 200
    answered = client().get("/api/check")
    assert answered.status_code == 400
    assert answered.json()["errors"][0]["code"] == "nothing_to_check"


def test_code_in_a_configuration_is_not_run(tmp_path):
    mark = tmp_path / "ran"
    text = f"model: !!python/object/apply:pathlib.Path.touch ['{mark}']\n"
    client().post("/api/check", json={"text": text})
    assert not mark.exists()


def test_a_text_is_read_as_its_file_would_be():
    by_text = read_configuration_text(LLAMAFACTORY, name="train.yaml")
    assert by_text.format == "llamafactory"
    assert by_text.files == ("train.yaml",)
    assert by_text.origin("training.max_length").line == 13


def test_a_job_of_the_form_can_be_checked_too():
    answered = client().get(f"/api/check?model=7B&method=lora&{CARD}")
    assert answered.status_code == 200
    assert answered.json()["format"] == "tuneplan"
