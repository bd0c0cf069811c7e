"""Files become documents, or an error that says what is wrong with them."""

import pytest

from tuneplan.errors import UnreadableFile
from tuneplan.formats.reading import companions_of, parse_foreign, read_foreign


@pytest.mark.parametrize(
    ("name", "text", "form"),
    [
        ("a.yaml", "model: x", "yaml"),
        ("a.json", '{"model": "x"} // by hand', "json"),
        ("a.toml", 'model = "x"', "toml"),
        ("a.sh", "torchrun train.py --model x", "shell"),
        ("a", "torchrun train.py --model x", "shell"),
        ("-", '{"model": "x"}', "json"),
        ("a.txt", "model: x", "yaml"),
    ],
)
def test_the_ending_or_the_text_says_how_it_is_read(name, text, form):
    document = parse_foreign(text, name=name)
    assert document.form == form
    assert document.tree["model"] == "x"
    assert document.lines["model"] == 1


def test_a_program_is_refused_and_never_run(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("raise SystemExit")
    with pytest.raises(UnreadableFile, match="programs are not run"):
        read_foreign(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [\n", "broken YAML"),
        ("a: 1\n\tb: 2\n", "a tab indents this line"),
        (
            "a: &a [x, x]\nb: &b [*a, *a]\n"
            + "".join(
                f"{chr(98 + i + 1)}: &{chr(98 + i + 1)} [*{chr(98 + i)}, *{chr(98 + i)}]\n"
                for i in range(20)
            ),
            "holds too much",
        ),
        ("model: !!python/object/apply:os.system [ls]\n", "nothing of it was run"),
        ("a: \x07\n", "no text"),
        ("", "empty"),
        ("just words", "holds no keys"),
    ],
)
def test_bad_files_are_refused_with_what_is_wrong(text, says):
    with pytest.raises(UnreadableFile, match=says):
        parse_foreign(text, name="a.yaml")


def test_a_key_that_stands_twice_is_a_mistake_with_both_lines():
    document = parse_foreign("a: 1\nb: 2\na: 3\n", name="a.yaml")
    (mistake,) = document.mistakes
    assert (mistake.path, mistake.line, mistake.message.params["first"]) == ("a", 3, 1)


def test_a_tag_that_names_code_is_told_and_never_run():
    document = parse_foreign("task: x\nscore: !function tools.score\n", name="a.yaml")
    assert document.tree["score"] == "tools.score"
    (notice,) = document.notices
    assert (notice.message.code, notice.path, notice.line) == ("tag_not_run", "score", 2)


def test_a_placeholder_is_unknown_and_a_reference_to_another_key_is_left_alone():
    text = "model: $MODEL\ndata: <path to your data>\nout: ${folder}/x\npad: <unk>\nbos: <|im|>\n"
    document = parse_foreign(text, name="a.yaml")
    assert document.unknown == {"model": "$MODEL", "data": "<path to your data>"}
    assert document.tree["model"] is None
    assert document.tree["pad"] == "<unk>"
    assert document.tree["out"] == "${folder}/x"


def test_files_that_are_pointed_to_are_found_from_the_file_or_from_a_folder_above(tmp_path):
    (tmp_path / "examples" / "deep").mkdir(parents=True)
    (tmp_path / "examples" / "deep" / "zero.json").write_text('{"a": 1}')
    source = tmp_path / "examples" / "train.yaml"
    source.write_text("a: 1")
    companion = companions_of(source)
    assert companion("deep/zero.json").tree == {"a": 1}
    assert companion("examples/deep/zero.json").tree == {"a": 1}
    assert companion("nowhere.json") is None
    assert companion("\0") is None


def test_a_launch_line_goes_before_the_configuration_that_it_names(tmp_path):
    (tmp_path / "sft.yaml").write_text("lr: 1\nmodel: a/b\ntrain:\n  epochs: 3\n  batch: 2\n")
    script = tmp_path / "run.sh"
    script.write_text("trl sft --config sft.yaml \\\n  --lr 2 --train.batch 4\n")
    document = read_foreign(script)
    assert document.tree["lr"] == 2
    assert document.tree["model"] == "a/b"
    assert document.tree["train"] == {"epochs": 3, "batch": 4}
    assert document.tree["shell"]["configuration"] == "sft.yaml"
    assert "config" not in document.tree
    found = {path: document.file_of(path) for path in ("lr", "model")}
    places = {path: (file[-8:], document.line_of(path)) for path, file in found.items()}
    assert places["lr"][1] == 2
    assert places["lr"][0].endswith("run.sh")
    assert places["model"] == ("sft.yaml", 2)
    assert document.file_of("train.epochs").endswith("sft.yaml")
    assert document.file_of("train.batch").endswith("run.sh")


def test_a_configuration_that_is_not_there_is_told(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("llamafactory-cli train nowhere.yaml cutoff_len=8\n")
    (notice,) = read_foreign(script).notices
    assert notice.message.code == "file_not_here"
    script.write_text("\ntorchrun train.py nowhere.yaml\n")
    with pytest.raises(UnreadableFile, match=r"nowhere\.yaml, which is not here") as raised:
        read_foreign(script)
    assert raised.value.line == 2
